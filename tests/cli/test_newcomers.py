"""Mistakes that people make first: each error says what to do."""

from __future__ import annotations

import json

import pytest

from outlast import Outlast
from outlast.model.errors import InvalidOption, InvalidSetting, UnknownTask
from tests.cli.conftest import Commands
from tests.cli.test_missing_database import READING, STEERING

pytestmark = pytest.mark.kinds("sqlite")

ID = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"
UNREACHABLE = ("--url", "postgresql://127.0.0.1:1/none")


def test_an_unreachable_database_is_told_with_what_to_check(run: Commands) -> None:
    """Every command that needs one, as text and as JSON."""
    for command in [*READING, *STEERING, ["migrate"], ["enqueue", "greet"], ["doctor"]]:
        answer = run(*command, *UNREACHABLE)
        told = answer.err + answer.out
        assert answer.code == 1 and "Connection refused" in told, (command, told)
        if command != ["doctor"]:
            assert "Check that it runs, and that --url or OUTLAST_URL leads there." in told, command
    error = json.loads(run("jobs", "--json", *UNREACHABLE).err)["error"]
    assert error["type"] == "StoreUnavailable" and "OUTLAST_URL" in error["message"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["qeues"], "There is no command 'qeues': did you mean queues?"),
        (["token", "creat"], "There is no command 'token creat': did you mean create?"),
        (["verify", "crashes"], "There is no command 'verify crashes': did you mean crash?"),
        (["verify", "xyz"], "There is no command 'verify xyz'."),
        (["limit", "mail", "--runing", "1"], "'--running'"),
        (["job", "abc"], "'abc' is not a job id: `outlast jobs` lists them"),
        (["revoke-link", ID], f"There is no link {ID}: `outlast job ID` lists those of a job."),
        (["drain", "w1"], "There is no worker w1: `outlast workers` lists them."),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    run: Commands, args: list[str], told: str
) -> None:
    answer = run(*args)
    assert answer.code in (1, 2) and told in answer.err


def test_an_unknown_task_is_told_with_the_nearest_one() -> None:
    with Outlast("sqlite:///never-opened.db") as ol:
        ol.task(name="resize")(lambda: None)
        with pytest.raises(UnknownTask, match=r"'resiz' is registered here: did you mean resize\?"):
            ol.registry["resiz"]
        with pytest.raises(UnknownTask, match=r"'mail' is registered here\. Import the module"):
            ol.registry["mail"]


def test_an_unknown_option_names_the_public_call_and_the_nearest_spelling() -> None:
    with Outlast("sqlite:///never-opened.db") as ol:
        with pytest.raises(InvalidOption, match=r"Outlast\.task\(\) has no .*mean max_attempts"):
            ol.task(max_attempt=3)  # type: ignore[call-overload]
        with pytest.raises(InvalidOption, match=r"Outlast\.queue\(\) has no .*mean running"):
            ol.queue("mail", runing=3)  # type: ignore[call-arg]
        with pytest.raises(InvalidOption, match=r"Outlast\.limit\(\) has no .*mean running"):
            ol.limit("mail", runing=3)
        with pytest.raises(InvalidSetting, match=r"WorkerSettings has no .*mean concurrency"):
            ol.worker(concurency=3)  # type: ignore[call-arg]
