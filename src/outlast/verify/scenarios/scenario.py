"""A scenario: its properties, registration and execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ..scenario_context import ScenarioContext

ScenarioBody = Callable[[ScenarioContext], Iterator[object]]
RetryBody = Callable[[ScenarioContext], Iterable[str]]

ARM_LATER = object()  # yielded by a scenario that arms the interceptor itself, later
SCENARIOS: dict[str, Scenario] = {}


@dataclass
class Scenario:
    """A registered scenario. `owner`: it writes as the owner of claims, so a zombie can try it too
    late. `apart`: it would remove rows of other scenarios. `uses_caller_transaction`: it commits a
    transaction of the caller's own. `most`: points per round of a slow scenario."""

    name: str
    body: ScenarioBody
    owner: bool = False
    removes_jobs: bool = False
    uses_caller_transaction: bool = False
    max_points: int | None = None
    only_store: str | None = None  # the only kind of database with this scenario
    exclusive: bool = False  # it needs a workspace without other scenarios
    expected_errors: tuple[
        type[Exception], ...
    ] = ()  # errors of other libraries that it causes in calls
    retry: RetryBody | None = field(default=None, repr=False)

    def on_retry(self, retry: RetryBody) -> RetryBody:
        """Register the retry of a killed process; it reports violations, if any."""
        self.retry = retry
        return retry


def scenario(
    name: str,
    *,
    owner: bool = False,
    removes_jobs: bool = False,
    uses_caller_transaction: bool = False,
    max_points: int | None = None,
    only_store: str | None = None,
) -> Callable[[ScenarioBody], Scenario]:
    def register(body: ScenarioBody) -> Scenario:
        SCENARIOS[name] = Scenario(
            name, body, owner, removes_jobs, uses_caller_transaction, max_points, only_store
        )
        return SCENARIOS[name]

    return register


def run_scenario(scenario: Scenario, ctx: ScenarioContext) -> None:
    """Prepare, then act under the interceptor."""
    steps = scenario.body(ctx)
    ctx.interceptor.armed = next(steps) is not ARM_LATER
    next(steps, None)
    ctx.interceptor.armed = False
