"""One client in many threads and across forks: nobody ever uses another's connection."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlast import Outlast
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App

CLIENT = """
import asyncio, os, sys, threading, time
from tests.support.app import from_environment
app = from_environment()

def wait_for(children):
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(codes), codes

def fork(action, *args):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        action(*args)
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(code)
"""


def numbers(app: App) -> Counter[int]:
    found: Counter[int] = Counter()
    last = None
    while page := app.ol.jobs(before=last, limit=1000):
        found.update(job.args["n"] for job in page)
        last = page[-1].id
    return found


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    app = App.of(database, tmp_path)
    yield app
    app.close()


def test_twenty_threads_share_one_client(app: App) -> None:
    """R193: enqueues, reads and waits at once, without a mix-up."""

    def use(thread: int) -> None:
        for n in range(10):
            number = thread * 10 + n
            job = app.mark.enqueue(number)
            assert app.ol.job(job.id).args == {"n": number}

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(use, range(20)))
    assert numbers(app) == Counter(range(200))


def test_children_forked_from_a_process_that_used_its_client_enqueue(
    app: App, processes: Processes
) -> None:
    """R193: from 20 threads in the parent and in each child, at the same time."""
    script = (
        CLIENT
        + """
def enqueue(first, count):
    for number in range(first, first + count):
        job = app.mark.enqueue(number)
        assert app.ol.job(job.id).args == {"n": number}, "somebody else's answer"

def in_threads(first):
    threads = [threading.Thread(target=enqueue, args=(first + 5 * n, 5)) for n in range(20)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert app.ol.counts()["ready"] >= 100

enqueue(0, 100)                                   # the parent has open connections
busy = threading.Thread(target=in_threads, args=(100,))
busy.start()                                      # and uses them while it forks
children = [fork(in_threads, 200 + 100 * n) for n in range(4)]
busy.join()
enqueue(600, 100)                                 # and they are still its own
wait_for(children)
enqueue(700, 100)
"""
    )
    processes.python(script, env=app.environment()).succeed(60.0)
    assert numbers(app) == Counter(range(800))


def test_async_callers_in_forked_children(app: App, processes: Processes) -> None:
    """R193: an event loop in the parent, and another in each child."""
    script = (
        CLIENT
        + """
async def enqueue(first):
    await asyncio.gather(*[app.mark.aenqueue(first + n) for n in range(20)])
    assert (await app.ol.acounts())["ready"] >= 20

asyncio.run(enqueue(0))
children = [fork(lambda n=n: asyncio.run(enqueue(20 * n))) for n in range(1, 4)]
asyncio.run(enqueue(80))
wait_for(children)
"""
    )
    processes.python(script, env=app.environment()).succeed(30.0)
    assert numbers(app) == Counter(range(100))


def test_what_a_child_enqueues_outlasts_the_close_of_its_parent(
    app: App, processes: Processes
) -> None:
    """R193, R012: a parent that used SQLite, forked and went away must not take the log that its
    child writes to with it."""
    script = (
        CLIENT
        + """
there, go = os.pipe(), os.pipe()

def enqueue():
    app.mark.enqueue(1)
    os.write(there[1], b".")
    os.read(go[0], 1)
    for number in range(2, 12):
        app.mark.enqueue(number)

app.mark.enqueue(0)
child = fork(enqueue)
os.read(there[0], 1)
app.close()                                       # the last one, as far as it can see
from outlast import Outlast
with Outlast(os.environ["OUTLAST_URL"], schema=os.environ["OUTLAST_SCHEMA"]) as other:
    assert other.counts()["ready"] == 2           # somebody else opens and closes it meanwhile
os.write(go[1], b".")
wait_for([child])
"""
    )
    processes.python(script, env=app.environment()).succeed(30.0)
    assert numbers(app) == Counter(range(12))


def test_waiting_for_results_works_in_a_forked_child(app: App, processes: Processes) -> None:
    """R193: the thread that asks for results stays behind with the parent."""
    job = app.mark.enqueue(7)
    worker = app.start_worker(processes)
    script = (
        CLIENT
        + f"""
def ask():
    assert app.ol.result({job.id!r}, timeout=20.0) == 7

waiting = threading.Thread(target=ask)
waiting.start()
children = [fork(ask) for _ in range(3)]
waiting.join()
ask()
wait_for(children)
"""
    )
    processes.python(script, env=app.environment()).succeed(30.0)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


@pytest.mark.kinds("sqlite")
def test_a_fork_while_another_thread_reads_a_signature_hangs_nobody(
    app: App, processes: Processes
) -> None:
    """R193: the first use of a task takes a while, and whatever lock that needs stays behind."""
    script = (
        CLIENT
        + """
from pydantic_core import core_schema
inside, leave = threading.Event(), threading.Event()

class Slow(int):
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        inside.set()
        leave.wait()
        return core_schema.int_schema()

@app.ol.task
def slow(n: Slow) -> None: ...

def fail(told):  # or nobody would hear of what a thread raised
    sys.excepthook(*told[:3])
    os._exit(3)

threading.excepthook = fail
busy = threading.Thread(target=lambda: slow.enqueue(Slow(1)))
busy.start()
inside.wait()
child = fork(lambda: app.mark.enqueue(2))
time.sleep(0.1)
leave.set()
wait_for([child])
busy.join()
"""
    )
    processes.python(script, env=app.environment()).succeed(20.0)
    assert numbers(app) == Counter([1, 2])


@pytest.mark.kinds("sqlite")
def test_a_fork_waits_for_another_threads_import(
    app: App, processes: Processes, tmp_path: Path
) -> None:
    """R193: a child inherits the locks of modules, whose holders stay behind with the parent."""
    (tmp_path / "late_module.py").write_text(
        "import builtins\nbuiltins.importing.set()\nbuiltins.finish.wait()\n"
    )
    script = (
        CLIENT
        + f"""
import builtins
builtins.importing, builtins.finish = threading.Event(), threading.Event()
sys.path.insert(0, {str(tmp_path)!r})

def load():
    import late_module

busy = threading.Thread(target=load)
busy.start()
builtins.importing.wait()
threading.Timer(0.2, builtins.finish.set).start()
wait_for([fork(load)])
busy.join()
"""
    )
    processes.python(script, env=app.environment()).succeed(20.0)


@pytest.mark.kinds("sqlite")
def test_a_program_that_runs_inside_an_import_may_fork(
    app: App, processes: Processes, tmp_path: Path
) -> None:
    """R193: no fork waits for ever for an import that lasts as long as the program."""
    (tmp_path / "endless_module.py").write_text("import builtins\nbuiltins.run()\n")
    script = (
        CLIENT
        + f"""
import builtins
sys.path.insert(0, {str(tmp_path)!r})

def forks():
    wait_for([fork(lambda: app.mark.enqueue(1))])

def run():
    forks()                                     # in the thread that imports
    other = threading.Thread(target=forks)
    other.start()
    other.join()

builtins.run = run
import endless_module
"""
    )
    processes.python(script, env=app.environment()).succeed(20.0)
    assert numbers(app) == Counter([1, 1])


def test_a_handler_may_fork(app: App, processes: Processes) -> None:
    """R193: a worker's own connections survive a handler that forks, and so does its child's use
    of them."""
    script = (
        CLIENT
        + """
from outlast import Context
ol = app.ol

@ol.task
def forks(n: int, ctx: Context) -> int:
    wait_for([fork(lambda: app.mark.enqueue(n))])
    return n

ol.worker(concurrency=4).run()
"""
    )

    @app.ol.task
    def forks(n: int) -> int: ...

    jobs = app.ol.enqueue(*[forks.job(n) for n in range(20)])
    worker = processes.python(script, env=app.environment())
    eventually(lambda: app.ol.counts()["succeeded"] == 40, 30.0, message=worker.output)
    assert [app.ol.job(job.id).attempt for job in jobs] == [1] * 20
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert "Traceback" not in worker.output()


@pytest.mark.skipif(sys.platform != "linux", reason="a fork without Python's knowledge")
@pytest.mark.kinds("postgres")
def test_a_fork_that_python_was_not_told_of_uses_no_connection_of_its_parent(
    app: App, processes: Processes
) -> None:
    """R193: extensions fork too; a connection knows by itself which process it belongs to."""
    script = (
        CLIENT
        + """
import ctypes
libc = ctypes.PyDLL(None)
app.mark.enqueue(0)
child = libc.fork()
if child == 0:
    app.mark.enqueue(1)
    os._exit(0)
app.mark.enqueue(2)
wait_for([child])
app.mark.enqueue(3)
"""
    )
    processes.python(script, env=app.environment()).succeed(30.0)
    with Outlast(app.url, schema=app.schema) as ol:
        assert ol.counts()["ready"] == 4
