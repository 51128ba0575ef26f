"""Run Django's tests of tasks: `python -m tests.integrations.django.upstream.run FOLDER`.

FOLDER is the `tests` folder of Django's source distribution; the database is $SHOP_DATABASE. Prints
a line of JSON: for each file the tests that passed and failed, and which were left out.
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

import django
from django.conf import settings

from tests.integrations.django.upstream.exclusions import EXCLUDED


def main(folder: str) -> int:
    settings.configure(
        DATABASES={"default": json.loads(os.environ["SHOP_DATABASE"])},
        INSTALLED_APPS=["outlast.integrations.django"],
        USE_TZ=True,
        SECRET_KEY="not secret",
    )
    django.setup()
    put_in_place()
    sys.path.insert(0, folder)
    from django.test.runner import DiscoverRunner

    outcomes: dict[str, str] = {}

    class Result(unittest.TextTestResult):
        def addSuccess(self, test: Any) -> None:
            super().addSuccess(test)
            outcomes.setdefault(name(test), "passed")

        def addFailure(self, test: Any, error: Any) -> None:
            super().addFailure(test, error)
            outcomes[name(test)] = "failed"

        def addError(self, test: Any, error: Any) -> None:
            super().addError(test, error)
            outcomes[name(test)] = "failed"

        def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
            super().addSubTest(test, subtest, error)
            if error is not None:
                outcomes[name(test)] = "failed"

    class Runner(DiscoverRunner):
        def build_suite(self, *args: Any, **options: Any) -> Any:
            suite = super().build_suite(*args, **options)
            suite._tests = [test for test in suite if name(test) not in EXCLUDED]
            return suite

        def get_resultclass(self) -> type:
            return Result

    Runner(interactive=False, verbosity=0).run_tests(["tasks"])
    by_file: dict[str, Counter[str]] = {}
    for test, outcome in [*outcomes.items(), *((test, "excluded") for test in EXCLUDED)]:
        by_file.setdefault(test.partition(".")[0], Counter())[outcome] += 1
    failed = sorted(test for test, outcome in outcomes.items() if outcome == "failed")
    version = django.get_version()
    print(json.dumps({"django": version, "files": by_file, "failed": failed}))
    return bool(failed)


def name(test: Any) -> str:
    return str(test.id()).removeprefix("tasks.")


def put_in_place() -> None:
    """Before Django's tests are imported: they find our backends under the names of Django's, and
    test cases that may use the database, in a transaction each."""
    import django.tasks.backends.dummy as dummy
    import django.tasks.backends.immediate as immediate
    import django.test

    from outlast.integrations.django import OutlastTestCase
    from tests.integrations.django.upstream import backends

    dummy.DummyBackend = backends.InPlaceOfDummy
    immediate.ImmediateBackend = backends.InPlaceOfImmediate
    django.test.SimpleTestCase = OutlastTestCase


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).absolute())))
