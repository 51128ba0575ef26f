"""`outlast stream` and `outlast job --follow`: a job's output, while it runs and afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast import Outlast
from outlast.model.claim import Claim
from outlast.ops.claim import promote
from outlast.ops.streams import store_stream
from tests.cli.conftest import Commands, patiently
from tests.store.jobs import end, put_and_take, take
from tests.support import Processes

LIMIT = 1000


def say(ol: Outlast, claim: Claim, n: int, *items: Any) -> None:
    """Store output, as the claim's worker does."""
    data = json.dumps(list(items))
    row = {"job": claim.id, **claim.guard, "n": n, "data": data, "first": n == 0}
    assert ol.store.run(store_stream, [row], LIMIT) == 1


def told(ol: Outlast) -> str:
    """A job of two attempts, the second of which says too much."""
    first = put_and_take(ol.store.run)
    say(ol, first, 0, "one\ttwo\n", "three \x1b[31m")
    end(ol.store.run, first, "failed")
    ol.reschedule_all(delay=0)
    ol.store.run(promote)
    (second,) = take(ol.store.run)
    say(ol, second, 0, {"tool": "sürch", "n": [1, None]}, "four")
    say(ol, second, 1, "x" * LIMIT)
    end(ol.store.run, second)
    return first.id


def test_output_is_printed_and_marks_are_kept_out_of_it(run: Commands, ol: Outlast) -> None:
    """R248: text as it is, but for what would steer a terminal; other values a line each."""
    id = told(ol)
    answer = run("stream", id)
    assert answer.code == 0
    assert answer.out == 'one\ttwo\nthree \\x1b[31m\n{"tool": "sürch", "n": [1, null]}\nfour\n'
    assert answer.err.splitlines() == [
        "-- attempt 1",
        "-- attempt 2",
        "-- the output is cut off here: it has reached its limit",
    ]


def test_each_chunk_as_json_is_where_the_next_call_resumes(run: Commands, ol: Outlast) -> None:
    """R248: one object a line; `--after` takes the id of any of them."""
    id = told(ol)
    whole = [json.loads(line) for line in run("stream", id, "--json").out.splitlines()]
    kinds = ["attempt", "text", "text", "attempt", "json", "text", "truncated"]
    assert [chunk["kind"] for chunk in whole] == kinds
    assert [chunk["attempt"] for chunk in whole] == [1] * 3 + [2] * 4
    assert whole[4]["data"] == {"tool": "sürch", "n": [1, None]}
    for seen, chunk in enumerate(whole):
        rest = run("stream", id, "--after", chunk["id"], "--json").out.splitlines()
        assert [json.loads(line) for line in rest] == whole[seen + 1 :]


def test_a_job_is_shown_before_its_output(run: Commands, ol: Outlast) -> None:
    """R248: `outlast job --follow`."""
    id = told(ol)
    shown = run("job", id).out
    followed = run("job", id, "--follow")
    assert followed.code == 0
    assert followed.out.startswith(shown.splitlines()[0])
    assert followed.out.endswith("\n\n" + run("stream", id).out)
    assert "-- attempt 2" in followed.err
    lines = run("job", id, "--follow", "--json").out
    assert lines.endswith("\n" + run("stream", id, "--json").out)


def test_wrong_ids_are_refused(run: Commands, ol: Outlast) -> None:
    """R248"""
    nobody = run("stream", "01900000-0000-7000-8000-000000000000")
    assert nobody.code == 1 and "There is no job" in nobody.err
    wrong = run("stream", told(ol), "--after", "yesterday")
    assert wrong.code == 1 and "must be the id of a chunk" in wrong.err


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("command", [("stream",), ("job", "--follow")])
def test_output_is_followed_until_the_job_ends(
    run: Commands, ol: Outlast, processes: Processes, command: tuple[str, ...]
) -> None:
    """R248: each chunk is printed when it is stored, also into a pipe."""
    claim = put_and_take(ol.store.run)
    following = processes.python("outlast", *command, claim.id, env=run.environment)
    for n, word in enumerate(("first ", "second ", "third")):
        say(ol, claim, n, word)
        patiently(lambda word=word: word in following.output(), message=following.output)
    assert not following.ended
    end(ol.store.run, claim)
    assert following.wait() == 0
    assert following.output().endswith("first second third\n")
