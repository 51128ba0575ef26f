"""A pipeline of two stages, extract → refine, and the five ways in which documents were orphaned.

    python documents.py                            all of them, on a SQLite file of its own
    python documents.py --url postgresql://…
    python documents.py --kill untriggered         submitted, and the submitter dies after COMMIT
    python documents.py --kill timer-lost          it waits for a retry, and every worker dies
    python documents.py --kill owner-dead          the worker dies in extract
    python documents.py --kill unhooked            extract has committed, and the worker dies
    python documents.py --kill refiner-dead        the worker dies in refine
    python documents.py --kill random              workers die at random times

Both stages are stored with the document, in one transaction. What becomes of them is in their rows,
so any worker that is alive goes on with them, in seconds.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import stage as stages
from inside import execute, note, notes, point, query, transaction

from outlast import Context, Flow, Job, Outlast, Permanent, Retry

CLASSES = ("untriggered", "timer-lost", "owner-dead", "unhooked", "refiner-dead")
WORDS = "a document has words and some of them come again and again".split()
REAPER_S = 22 * 60  # until the reaper of the accident came by
BACK_S = 60.0
RETRY_S = 2.0

ol = Outlast()
survives = ol.task(max_crashes=100, retry=Retry(max_attempts=3, base=RETRY_S, jitter=0.0))


@survives
def extract(document: int, text: str, ctx: Context) -> None:
    start("extract", document, ctx)
    words = text.split()
    point("in extract")
    with ctx.completing(words):
        pass  # the extract is stored, and refine is ready to run
    note("extracted", document, time.time())
    point("after extract")


@survives
def refine(document: int, ctx: Context) -> dict[str, int]:
    start("refine", document, ctx)
    (words,) = ctx.results()
    point("in refine")
    if "late" in words and ctx.attempt == 1:
        raise ConnectionError("the model is busy")
    if "unclear" in words:
        raise Permanent("a document must be clear")
    return dict(Counter(words))


def start(task: str, document: int, ctx: Context) -> None:
    note("starts", task, document, time.time())
    if ctx.cancelled.wait(0.1):
        raise InterruptedError("asked to stop")


def submit(document: int, text: str) -> None:
    """The document and its two stages, in one transaction."""
    flow = Flow(f"document {document}")
    extracted = flow.add(extract.job(document, text))
    flow.add(refine.job(document), after=extracted)
    with transaction() as conn:
        execute(conn, "INSERT INTO document VALUES (?, ?)", document, text)
        ol.enqueue(flow, conn=conn)
        point("before submit")
    point("after submit")  # here others publish, and die before it


class Play:
    def __init__(self, stage: stages.Stage) -> None:
        self.stage, self.texts = stage, dict[int, str]()
        self.workers = [stage.worker(f"worker-{n}", "--concurrency", 4) for n in (1, 2)]
        self.back: dict[str, float] = {}  # seconds
        self.unread = self.early = 0

    def text(self, *more: str) -> tuple[int, str]:
        """Of a new document."""
        document = len(self.texts)
        words = [*more, *self.stage.random.choices(WORDS, k=20)]
        self.texts[document] = " ".join(words)
        return document, self.texts[document]

    def both_up(self) -> bool:
        return all(worker.ready for worker in self.workers)

    # The five classes. Each returns the document, the stage that must go on, and since when.

    def untriggered(self) -> tuple[int, str, float]:
        document, text = self.text()
        code = "import sys, documents; documents.submit(int(sys.argv[1]), sys.argv[2])"
        words = (sys.executable, "-c", code, document, text)
        for place in ("before submit", "after submit"):
            died = self.stage.die_at(place, act=lambda: self.stage.start("submitter", *words))
        return document, "extract", died

    def timer_lost(self) -> tuple[int, str, float]:
        document, text = self.text("late")
        submit(document, text)
        self.stage.wait(lambda: self.job(document, "refine").state == "scheduled", "a retry waits")
        due = self.starts("refine", document)[0] + RETRY_S
        for worker in self.workers:
            self.stage.kill(worker, "every worker, while a retry waits")
        self.stage.revive(*self.workers)
        self.stage.wait(lambda: len(self.starts("refine", document)) > 1, "the retry starts")
        self.early += self.starts("refine", document)[1] < due
        return document, "refine", due

    def owner_dead(self) -> tuple[int, str, float]:
        return self.die_in("in extract", "extract")

    def unhooked(self) -> tuple[int, str, float]:
        return self.die_in("after extract", "refine")

    def refiner_dead(self) -> tuple[int, str, float]:
        return self.die_in("in refine", "refine")

    def die_in(self, place: str, task: str) -> tuple[int, str, float]:
        document, text = self.text()
        died = self.stage.die_at(place, *self.workers, act=lambda: submit(document, text))
        return document, task, died

    def orphan(self, name: str) -> None:
        """Orphan a document, and measure when the stage that was cut off starts again."""
        self.stage.wait(lambda: self.all_ended() and self.both_up(), "the others have ended")
        document, task, since = getattr(self, name.replace("-", "_"))()
        if task == "refine":  # whatever becomes of that, the first stage's result can be read
            self.unread += self.job(document, "extract").result != self.texts[document].split()

        def starts() -> list[float]:
            # A committed row needs no submitter: its stage may start before that one is dead.
            begun = self.starts(task, document)
            return begun if name == "untriggered" else [at for at in begun if at >= since]

        self.stage.wait(starts, f"{name}: {task} of document {document} starts again")
        self.back[name] = max(self.back.get(name, 0.0), starts()[0] - since, 0.0)

    # Facts

    def job(self, document: int, task: str) -> Job:
        (found,) = (job for job in ol.jobs(task=task) if job.args["document"] == document)
        return found

    def starts(self, task: str, document: int) -> list[float]:
        wanted = [task, str(document)]
        return [float(at) for *which, at in notes("starts") if which == wanted]

    def all_ended(self) -> bool:
        flows = ol.flows(limit=1000)
        return len(flows) == len(self.texts) and all(flow.final for flow in flows)

    # The whole

    def run(self) -> None:
        stage = self.stage
        document, text = self.text("unclear")
        submit(document, text)
        for _ in range(stage.options.rounds):
            for name in CLASSES:
                if stage.chosen(name):
                    self.orphan(name)
        if stage.chosen("random"):
            for _ in range(stage.options.documents):
                submit(*self.text())
            stage.kill_until(self.all_ended, *self.workers)
        stage.wait(self.all_ended, "every document is refined")
        self.count()

    def count(self) -> None:
        stage = self.stage
        for name, seconds in self.back.items():
            stage.at_most(f"seconds back, {name}", round(seconds, 2), BACK_S)
        stage.show("seconds until a reaper comes by", REAPER_S)
        (stored,) = query("SELECT count(*) FROM document")[0]
        stage.show("documents", len(self.texts))
        stage.equal("documents stored", stored, len(self.texts))
        extracts = {job.args["document"]: job for job in ol.jobs(task="extract", limit=1000)}
        refined = {job.args["document"]: job for job in ol.jobs(task="refine", limit=1000)}
        unread = [n for n, text in self.texts.items() if extracts[n].result != text.split()]
        wrong = [n for n, text in self.texts.items() if refined[n].result != counted(text)]
        stage.equal("extracts unreadable while refine was cut off", self.unread, 0)
        stage.equal("extracts that can be read", len(extracts) - len(unread), len(self.texts))
        stage.equal("lost", len(wrong), 0)
        stage.show("runs", len(notes("starts")))
        stage.equal("extracts run again after their end", self.extracted_again(), 0)
        partial = [flow.name for flow in ol.flows(limit=1000) if flow.state == "partial"]
        stage.equal("unclear, with an extract that can be read", len(partial), 1)
        stage.equal("retries before their time", self.early, 0)

    def extracted_again(self) -> int:
        ends = {int(document): float(at) for document, at in notes("extracted")}
        return sum(at > end for n, end in ends.items() for at in self.starts("extract", n))


def counted(text: str) -> dict[str, int] | None:
    """What refine must return; None of an unclear document."""
    words = text.split()
    return None if "unclear" in words else dict(Counter(words))


def play(stage: stages.Stage) -> None:
    ol.migrate()
    query("CREATE TABLE document (id integer NOT NULL, text text NOT NULL)")
    Play(stage).run()


if __name__ == "__main__":
    rounds = {"type": int, "default": 2, "help": "of each class; default: %(default)d"}
    number = {"type": int, "default": 40, "help": "while workers are killed at random"}
    stages.main("documents", (*CLASSES, "random"), rounds=rounds, documents=number)
