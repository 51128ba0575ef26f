"""Blocks of `atomic()` that an enqueue does not join."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.integrations.django.shop import Shop
from tests.support import Database

SCRIPT = """
import warnings
from django.db import transaction
from shop import tasks
from outlast.integrations.django import ol

def rolled_back(using, order):
    try:
        with transaction.atomic(using=using):
            tasks.pay.enqueue(order=order)
            tasks.pay.enqueue(order=order)
            raise ValueError
    except ValueError:
        pass

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    rolled_back("other", 1)
    rolled_back("default", 2)
print([sorted(job.args["order"] for job in ol.jobs()), [str(one.message)[:43] for one in told]])
"""
LOCKED = """
from django.db import transaction
from shop import tasks
from outlast import Unsupported
from outlast.integrations.django import ol

with transaction.atomic():
    try:
        tasks.pay.enqueue(order=1)
    except Unsupported as refused:
        print(refused)
tasks.pay.enqueue(order=2)
print([job.args["order"] for job in ol.jobs()])
"""
WARNING = "this job is committed by itself, not with t"


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    ("ambient", "expected"), [("join", [[1, 1], []]), ("warn", [[1, 1, 2, 2], [WARNING]])]
)
def test_blocks_of_another_database_are_not_joined_and_warn_warns_once(
    database: Database, tmp_path: Path, ambient: str, expected: object
) -> None:
    """R221: what is rolled back in another database keeps its jobs in ours."""
    shop = Shop(database, {"ambient": ambient}, OPTIONS={}).migrated()
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "other.db")}
    shop.more_env["SHOP_OTHER_DATABASE"] = json.dumps(other)
    last = shop.run("shell", "-c", SCRIPT).strip().splitlines()[-1]
    assert ast.literal_eval(last) == expected


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("ambient", ["warn", "off"])
def test_a_block_that_locks_the_file_refuses_a_job_that_commits_by_itself(
    database: Database, ambient: str
) -> None:
    """It would wait for its own transaction until the time is over. After the block it is made."""
    shop = Shop(database, {"ambient": ambient}).migrated()
    told, jobs = shop.run("shell", "-c", LOCKED).strip().splitlines()[-2:]
    assert "locks the SQLite file" in told and "set 'join'" in told
    assert jobs == "[2]"
