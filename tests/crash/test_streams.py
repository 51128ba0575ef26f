"""Output of workers that are killed, or stall and come back."""

from __future__ import annotations

import threading

import pytest

from outlast import StreamChunk
from tests.support import Processes, eventually
from tests.support.app import PATIENCE, App
from tests.support.durable import WORDS
from tests.support.processes import stopped

both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


class Reader(threading.Thread):
    """Reads a job's output, and resumes after every few chunks."""

    def __init__(self, app: App, job: str) -> None:
        super().__init__(daemon=True)
        self.chunks: list[StreamChunk] = []
        self._app, self._job = app, job
        self.start()

    def run(self) -> None:
        ended = False
        while not ended:
            after = self.chunks[-1].id if self.chunks else None
            reading, ended = self._app.ol.stream(self._job, after=after, poll=0.02), True
            for n, chunk in enumerate(reading):
                self.chunks.append(chunk)
                if n == 2:
                    ended = False
                    break

    def of_attempt(self, attempt: int) -> str:
        return "".join(chunk.text for chunk in self.chunks if chunk.attempt == attempt)

    def wait(self) -> None:
        self.join(PATIENCE)
        assert not self.is_alive()


def in_order(reader: Reader) -> None:
    """Each position once, rising; each attempt marked before its first chunk."""
    places = [tuple(map(int, chunk.id.split("-"))) for chunk in reader.chunks]
    assert places == sorted(set(places))
    fences = sorted({fence for fence, *_ in places})
    marks = [chunk.fence for chunk in reader.chunks if chunk.kind == "attempt"]
    assert marks == fences


@both_colours
def test_readers_of_a_killed_worker_s_job_see_the_new_attempt_marked(
    app: App, processes: Processes, colour: str
) -> None:
    """R248: kill -9 in the middle; the first attempt's output is a prefix, the second's is whole,
    and a reader that resumes again and again has neither a gap nor a repeat."""
    job = app.durable.talks[colour].enqueue()
    reader = Reader(app, job.id)
    worker = app.start_worker(processes)
    eventually(lambda: WORDS[5] in reader.of_attempt(1), PATIENCE, message=worker.output)
    worker.kill()
    app.start_worker(processes)
    app.finished(job)
    reader.wait()
    in_order(reader)
    whole = "".join(WORDS)
    assert reader.of_attempt(2) == whole
    assert whole.startswith(reader.of_attempt(1)) and reader.of_attempt(1) != whole
    assert list(app.ol.stream(job.id)) == reader.chunks


@both_colours
def test_the_output_of_a_stored_step_is_stored(app: App, processes: Processes, colour: str) -> None:
    """R248, R105: kill -9 at the step's COMMIT; the step does not run again, and no word of it is
    missing."""
    job = app.durable.tells[colour].enqueue()
    assert app.start_worker(processes, "committed keep_step").wait(PATIENCE) == -9
    app.start_worker(processes)
    assert app.finished(job).result == [len(WORDS), 2]
    chunks = list(app.ol.stream(job.id))
    assert "".join(chunk.text for chunk in chunks if chunk.attempt == 1) == "".join(WORDS)
    assert not [chunk for chunk in chunks if chunk.attempt == 2 and chunk.kind != "attempt"]


def test_a_worker_that_was_stopped_adds_nothing_when_it_comes_back(
    app: App, processes: Processes
) -> None:
    """R248, R030: A stalls in its handler, B ends the job, A goes on streaming: refused."""
    job = app.durable.talks["stalls"].enqueue()
    reader = Reader(app, job.id)
    a = app.start_worker(processes)
    eventually(lambda: reader.of_attempt(1), PATIENCE, message=a.output)
    stopped(a.pid)
    app.start_worker(processes)
    app.finished(job)
    reader.wait()
    a.resume()
    eventually(lambda: "claim lost" in a.output() or "refused" in a.output(), message=a.output)
    assert list(app.ol.stream(job.id)) == reader.chunks
    assert "zombie" not in reader.of_attempt(1)
    assert reader.of_attempt(2) == "".join(WORDS)
