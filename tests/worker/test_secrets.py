"""Arguments that are marked: the handler gets them, the row keeps them, nobody else sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from pydantic import AfterValidator

from outlast import BatchFailed, InvalidArguments, InvalidInput, Job, Outlast, Retry, Secret
from outlast.cli import outlast
from outlast.model.secret import (
    is_secret,
    mark_secrets,
    mask,
    masked_args,
    secret_values,
    unmark_secrets,
)
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE
from tests.worker.working import ended, sql, work

CARD = "4111-1111-1111-1111"
ONCE = Retry(max_attempts=1)


async def test_only_the_handler_sees_a_marked_argument(ol: Outlast, database: Database) -> None:
    """R198: and the row says that it is one, so that whoever shows it knows."""
    seen: list[tuple[int, str]] = []

    @ol.task
    async def charge(user: int, card: Annotated[str, Secret]) -> None:
        seen.append((user, card))

    job = await charge.aenqueue(7, card=CARD)
    assert job.args == {"user": 7, "card": "***"}
    async with work(ol):
        now = await ended(ol, job)
    assert seen == [(7, CARD)]
    assert now.args == job.args
    assert CARD not in repr((now, job, now.as_json()))
    [(kept,)] = sql(database, "SELECT args FROM {job} WHERE id = ?", job.id)
    kept = json.loads(kept) if isinstance(kept, str) else kept
    assert kept == {"user": 7, "secret:card": CARD}
    stranger = Outlast(database.url, schema=database.schema)  # it knows no task
    assert (await stranger.ajob(job.id)).args == {"user": 7, "card": "***"}
    await stranger.aclose()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("how", ["async", "thread", "batch", "named"])
async def test_what_its_error_quotes_is_masked(ol: Outlast, how: str) -> None:
    """R198: in what is kept of the error, and so on every page that shows it."""
    if how == "async":

        @ol.task(retry=ONCE, name="charge")
        async def charge(card: Annotated[str, Secret]) -> None:
            raise ValueError(f"{card} was refused")
    elif how == "thread":

        @ol.task(retry=ONCE, name="charge")
        def charge(card: Annotated[str, Secret]) -> None:
            raise ValueError(f"{card!r} was refused") from KeyError(card)
    else:

        @ol.task(retry=ONCE, batch=2, wait=0.0, name="charge")
        async def charge(cards: list[Annotated[str, Secret]]) -> None:
            if how == "named":
                raise BatchFailed(dict.fromkeys(range(len(cards)), f"{cards[0]} was refused"))
            raise ValueError(f"{cards[0]} was refused")

    job = await charge.aenqueue(CARD)
    async with work(ol):
        dead = await ended(ol, job)
    attempts, _ = await ol.ahistory(job.id)
    assert dead.state == "dead"
    assert "*** was refused" in str(dead.error).replace("'", "")
    assert CARD not in repr((dead, attempts))


def picky(card: str) -> str:
    raise ValueError(f"{card} is no card")


@pytest.mark.kinds("sqlite")
def test_a_refusal_does_not_quote_it(ol: Outlast) -> None:
    """R198: what is wrong with the others is said."""

    @ol.task
    def charge(user: int, card: Annotated[str, AfterValidator(picky), Secret]) -> None: ...

    with pytest.raises(InvalidArguments) as refused:
        charge.enqueue(user="x", card=CARD)
    assert CARD not in repr((refused.value, str(refused.value), refused.value.facts))
    assert [problem.path for problem in refused.value.problems] == ["user", "card"]
    with pytest.raises(InvalidArguments, match="card: is missing"):
        charge.enqueue(user=1)
    with pytest.raises(InvalidArguments) as unread:
        ol.registry["charge"].arguments.decode(json.dumps({"user": 1, "secret:card": CARD}))
    assert CARD not in str(unread.value)


@pytest.mark.kinds("sqlite")
async def test_who_does_not_know_the_task_may_mark_or_not(ol: Outlast, database: Database) -> None:
    seen: list[Any] = []

    @ol.task
    async def charge(user: int, card: Annotated[str, Secret]) -> None:
        seen.append((user, card))

    decode = ol.registry["charge"].arguments.decode
    for stored in ({"user": 7, "card": CARD}, {"secret:user": 7, "secret:card": CARD}):
        assert decode(json.dumps(stored)) == {"user": 7, "card": CARD}


@pytest.mark.kinds("sqlite")
def test_the_same_key_with_another_secret_is_the_same_call(ol: Outlast) -> None:
    @ol.task
    def charge(user: int, token: Annotated[str, Secret]) -> None: ...

    first = charge.using(key="k").enqueue(1, "one token")
    assert charge.using(key="k").enqueue(1, "another").id == first.id


@pytest.mark.kinds("sqlite")
def test_no_command_shows_it(ol: Outlast, database: Database) -> None:
    """R198"""

    @ol.task
    def charge(user: int, card: Annotated[str, Secret]) -> None: ...

    job: Job = charge.enqueue(7, CARD)
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    for command in (["job", job.id], ["job", job.id, "--json"], ["jobs", "--json"]):
        said = CliRunner().invoke(outlast, command, env=env)
        assert said.exit_code == 0, said.output
        assert CARD not in said.output
    assert '"card": "***"' in said.output


@pytest.mark.kinds("sqlite")
def test_no_log_line_has_it(processes: Processes, database: Database, tmp_path: Path) -> None:
    """R197, R198: a worker that logs everything; and one id finds the whole life of a job."""
    (tmp_path / "charging.py").write_text(
        "from typing import Annotated\n"
        "from outlast import Context, Outlast, Permanent, Retry, Secret\n"
        "ol = Outlast()\n"
        "@ol.task(retry=Retry(max_attempts=2, base=0.0))\n"
        "def charge(card: Annotated[str, Secret], ctx: Context):\n"
        "    if ctx.attempt == 1:\n"
        "        raise ValueError(f'{card} was refused')\n"
        "    ctx.enqueue(remind.job())\n"
        "@ol.task\n"
        "def remind():\n"
        "    raise Permanent('no address')\n"
    )
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Outlast(database.url, schema=database.schema) as ol:

        @ol.task(max_attempts=2)
        def charge(card: Annotated[str, Secret]) -> None: ...

        from outlast.ops.enqueue import enqueue
        from outlast.tracing import traced

        [first] = ol.store.run(enqueue, traced([charge.job(CARD).new_job()], trace))
        worker = processes.python(
            "outlast", "worker", "charging:ol", "--log-format", "json", "--log-level", "debug",
            env=env, cwd=tmp_path,
        )  # fmt: skip
        eventually(lambda: ol.counts()["dead"] == 1, PATIENCE, message=worker.output)
        [reminder] = ol.jobs(task="remind")
    eventually(lambda: reminder.id in worker.output(), PATIENCE)
    lines = [json.loads(line) for line in worker.output().splitlines()]
    assert CARD not in worker.output()
    life = [line for line in lines if "0af7651916cd43dd8448eb211c80319c" in line.get("trace", "")]
    assert {line["job"] for line in life} == {first.id, reminder.id}
    assert all({"attempt", "fence", "tenant"} <= line.keys() for line in life)


class TestMarks:
    def test_a_type_is_marked_wherever_the_mark_stands(self) -> None:
        secret = Annotated[str, Secret]
        for hint in (secret, Annotated[str, Secret()], secret | None, list[secret],
                     Annotated[list[secret], "x"]):  # fmt: skip
            assert is_secret(hint)
        for hint in (str, Annotated[str, "secret"], list[str], Any, None):
            assert not is_secret(hint)

    def test_names_come_back(self) -> None:
        text = mark_secrets('{"a":1.0,"b":"ü"}', {"b"})
        assert text == '{"a":1.0,"secret:b":"ü"}'
        assert unmark_secrets(text, {"a", "b"}) == '{"a":1.0,"b":"ü"}'
        for odd in ("[1]", "no json", '"text"'):
            assert unmark_secrets(mark_secrets(odd, {"a"}), {"a"}) == odd
            assert masked_args(odd) == odd

    def test_words_are_found_inside(self) -> None:
        given = {"a": {"x": ["four", 12345, None, True]}, "b": "unmarked"}
        assert secret_values([given], ["a", "c"]) == ("12345", "four")
        error = mask({"message": "12345, four and 1"}, ("12345", "four"))
        assert error == {"message": "***, *** and 1"}

    @pytest.mark.kinds("sqlite")
    def test_what_has_no_name_cannot_be_marked(self, ol: Outlast) -> None:
        @ol.task
        def charge(**cards: Annotated[str, Secret]) -> None: ...

        with pytest.raises(InvalidInput, match="name each secret parameter"):
            charge.enqueue(card=CARD)
