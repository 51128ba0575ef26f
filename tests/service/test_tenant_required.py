"""`tenant_required`: a job that names no tenant is refused, whichever way it comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from outlast import (
    Context,
    Flow,
    InvalidSetting,
    Outlast,
    TenantRequired,
    chain,
    group,
)
from outlast.cli import outlast
from tests.service.serving import serving
from tests.support import Database
from tests.worker.working import ended, work


@pytest.fixture
def strict(database: Database) -> Iterator[Outlast]:
    with Outlast(database.url, schema=database.schema, tenant_required=True) as opened:
        opened.migrate()
        yield opened


async def test_python_refuses_a_job_without_a_tenant(strict: Outlast) -> None:
    """Single jobs, batches, flows; in both faces; the message says what to do."""

    @strict.task
    def work(n: int = 0) -> None: ...

    @strict.task(tenant="acme")
    def owned() -> None: ...

    flow = Flow("two")
    flow.add(work.job(2), after=[flow.add(owned.job())])
    for plan in (
        [work.job()],
        [owned.job(), work.using(tenant="acme").job(), work.job()],
        [chain(owned.job(), work.job())],
        [group(owned.job(), work.job()).then(owned.job())],
        [flow],
    ):
        with pytest.raises(TenantRequired, match=r"using\(tenant=…\)"):
            strict.enqueue(*plan)
        with pytest.raises(TenantRequired):
            await strict.aenqueue(*plan)
    with pytest.raises(TenantRequired, match="A job of work must name its tenant"):
        work.enqueue()
    assert sum(strict.counts().values()) == 0, "nothing is stored"
    assert work.using(tenant="acme").enqueue().tenant == "acme"
    assert owned.enqueue().tenant == "acme"


async def test_a_handler_and_its_hooks_name_a_tenant_too(strict: Outlast) -> None:
    """`ctx.enqueue` refuses within the handler; hooks take the tenant of their job."""

    @strict.task
    async def after() -> None: ...

    @strict.task(max_attempts=1)
    async def forgets(ctx: Context) -> None:
        ctx.enqueue(after.job())

    @strict.task
    async def says(ctx: Context) -> None:
        ctx.enqueue(after.using(tenant=ctx.job.tenant).job())

    async with work(strict):
        failed = await forgets.using(tenant="acme").aenqueue()
        done = await says.using(tenant="acme", on_success=after.job()).aenqueue()
        assert "TenantRequired" in str((await ended(strict, failed)).error)
        assert (await ended(strict, done)).state == "succeeded"
    assert [job.tenant for job in strict.jobs(task="after")] == ["acme", "acme"]


def test_schedules_name_a_tenant(strict: Outlast) -> None:
    """Where they are declared, and where they are made at run time."""

    @strict.task
    def report() -> None: ...

    with pytest.raises(TenantRequired):

        @strict.task(every="1h")
        def hourly() -> None: ...

    with pytest.raises(TenantRequired):
        strict.schedule("nightly", report.job(), cron="0 3 * * *")
    with pytest.raises(TenantRequired):
        strict.create_schedule("nightly", report.job(), cron="0 3 * * *")
    assert strict.schedules() == []
    made = strict.create_schedule("nightly", report.using(tenant="acme").job(), cron="0 3 * * *")
    assert made.tenant == "acme"


def test_the_service_takes_the_tenant_of_the_token(strict: Outlast) -> None:
    """A token without a tenant names none: 422, and nothing is stored; known and unknown tasks."""

    @strict.task
    def known() -> None: ...

    with serving(strict) as served:
        plans = {
            "/api/v1/jobs": {"task": "known"},
            "/api/v1/jobs/batch": {"jobs": [{"task": "unknown"}]},
            "/api/v1/flows": {"flow": {"chain": [{"task": "known"}, {"task": "unknown"}]}},
            "/api/v1/schedules": {"name": "n", "job": {"task": "known"}, "every": "1h"},
        }
        for path, body in plans.items():
            answer = served.post(path, json=body)
            assert answer.status_code == 422, answer.text
            assert "must name its tenant" in answer.text, answer.text
        assert sum(strict.counts().values()) == 0
        assert strict.schedules() == []


def test_the_command_line_reads_the_setting(database: Database) -> None:
    """From the environment, where no app says it."""
    env = {
        "OUTLAST_URL": database.url,
        "OUTLAST_SCHEMA": database.schema,
        "OUTLAST_TENANT_REQUIRED": "true",
    }
    refused = CliRunner().invoke(outlast, ["enqueue", "elsewhere"], env=env)
    assert refused.exit_code == 1 and "--tenant" in refused.stderr
    made = CliRunner().invoke(outlast, ["enqueue", "elsewhere", "--tenant", "acme"], env=env)
    assert made.exit_code == 0
    with Outlast(database.url, schema=database.schema) as lenient:
        assert [job.tenant for job in lenient.jobs()] == ["acme"]


def test_a_setting_that_is_neither_yes_nor_no_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="tenant_required"):
        Outlast("sqlite:///unused.db", tenant_required="yes")  # type: ignore[arg-type]
