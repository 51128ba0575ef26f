"""Cases that Django's own test runner runs, in the project beside this file, on both databases."""

from __future__ import annotations

import re

import pytest

from tests.integrations.django.shop import Shop
from tests.support import Database
from tests.support.tiers import slow_but


@pytest.mark.slow_on("postgres")
@pytest.mark.parametrize("ambient", slow_but(["join"], ["join", "off"]))
def test_the_cases_pass_in_django_s_test_runner(database: Database, ambient: str) -> None:
    """R002; the names of the cases say what each shows. With `off`, only those of a test case of
    our own: the others join."""
    shop = Shop(database, {"ambient": ambient, "schema": "outlast"})
    if not database.is_sqlite:
        shop.entry["OPTIONS"] = {}
    elif ambient == "join":
        shop.entry["NAME"] = ":memory:"
    cases = "shop" if ambient == "join" else "shop.cases_jobs.Draining"
    output = shop.run("test", "--noinput", "--pattern", "cases_*.py", cases)
    ran = re.search(r"Ran (\d+) tests", output)
    assert ran is not None and int(ran[1]) >= 10 and "\nOK" in output, output
