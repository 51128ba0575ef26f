"""Whatever is sent to the API, the answer is one that its description promises (schemathesis)."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from outlast import Outlast
from outlast.model.settings import ServiceSettings
from outlast.service.openapi import description
from outlast.service.route_table import ROUTES
from tests.service.serving import bearer, serving
from tests.support import Database

# The server's loops, in a thread beside the test, have their jitter from the same generator.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")


@cache
def checks() -> list[Any]:
    """Imported here: that takes longer than to collect the tests of a folder."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]


@pytest.mark.kinds("sqlite")
def test_the_api_answers_as_described(database: Database) -> None:
    """R145, R202: a few of every operation; no 5xx, no drift, no success without authorisation."""
    walk(database, each=4)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_the_api_answers_as_described_ten_thousand_times(database: Database) -> None:
    """The same, at length: ≥ 10,000 cases."""
    assert walk(database, each=450) >= 10_000


def walk(database: Database, each: int) -> int:
    """Every operation with `each` cases, by two tenants' tokens and without one."""
    import schemathesis

    # Nobody waits for what never ends, and nobody is throttled for what he may not do.
    eager = ServiceSettings(max_wait=0.01, events_life=0.05, stream_life=0.05, guesses=10**6)
    with (
        Outlast(database.url, schema=database.schema) as ol,
        serving(ol, eager) as served,
    ):
        walker = Walker(served)
        for found in schemathesis.openapi.from_dict(description(ROUTES)).get_all_operations():
            walker.walk(found.ok(), each)
        assert walker.outcomes["good"] > walker.number / 20, walker.outcomes
        return walker.number


class Walker:
    def __init__(self, served: Any) -> None:
        self.served = served
        self.tokens = {name: served.token("admin", tenant=name) for name in ("anna", "bert")}
        self.marks = {name: f"{name}s-own-secret" for name in self.tokens}
        self.ids = {name: self._jobs(name) for name in self.tokens}
        self.number = 0
        self.outcomes: Counter[str] = Counter()

    def _jobs(self, name: str) -> list[str]:
        """Some jobs and a flow, all of which bear a word that no other tenant may ever read."""
        body = {"task": self.marks[name], "queue": self.marks[name]}
        flow = {"name": self.marks[name], "flow": {"chain": [body, body]}}
        made = self.served.post("/api/v1/flows", self.tokens[name], json=flow)
        assert made.status_code == 201, made.text
        return [made.json()["flow"], *(job["id"] for job in made.json()["jobs"])]

    def walk(self, operation: Any, each: int) -> None:
        @settings(
            max_examples=each,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.seed(random.getrandbits(64))
        @given(case=operation.as_strategy(), data=st.data())
        def one(case: Any, data: st.DataObject) -> None:
            self.case(case, data)

        one()

    def case(self, case: Any, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.tokens)))
        owner = data.draw(st.sampled_from(sorted(self.ids)))
        if case.path_parameters and data.draw(st.booleans()):
            case.path_parameters["id"] = data.draw(st.sampled_from(self.ids[owner]))
        self.number += 1
        patient = {"base_url": self.served.url, "timeout": 60}
        response = case.call(**patient, headers=bearer(self.tokens[who]))
        case.validate_response(response, checks=checks())
        told = response.text
        for name, mark in self.marks.items():
            assert name == who or mark not in told or mark in str(case.body), (who, response.url)
        bare = case.call(**patient)
        assert bare.status_code >= 400, f"{case.method} {bare.url} without a token"
        self.outcomes["good" if response.status_code < 400 else "refused"] += 1
        self.outcomes[str(response.status_code)] += 1
