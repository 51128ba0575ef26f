"""Assertions about enqueued jobs say what is there when they fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import pytest

from outlast import InvalidOption, Outlast, Secret
from outlast.testing import assert_enqueued, drain, refute_enqueued

pytestmark = pytest.mark.kinds("sqlite")


def test_a_job_is_found_by_its_task_and_the_given_arguments(ol: Outlast) -> None:
    @ol.task
    def send(to: str, subject: str = "hello") -> None: ...

    job = send.enqueue("ann", subject="news")
    assert assert_enqueued(send).id == job.id
    assert assert_enqueued(send, "ann").id == job.id
    assert assert_enqueued(send, subject="news").id == job.id
    assert assert_enqueued(send, "ann", subject="news").id == job.id
    refute_enqueued(send, "bob")
    refute_enqueued(send, "ann", subject="hello")


def test_a_failed_assertion_names_the_nearest_jobs(ol: Outlast) -> None:
    @ol.task
    def send(to: str, subject: str) -> None: ...

    send.enqueue("ann", "news")
    send.enqueue("bob", "bill")
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(send, "ann", "bill")
    text = str(failed.value)
    assert "no job send(to='ann', subject='bill')" in text
    assert "send(to='ann', subject='news') ready in queue 'default', but subject='news'" in text


def test_a_failed_assertion_names_other_tasks_if_there_is_no_job_of_this_one(ol: Outlast) -> None:
    @ol.task
    def wanted() -> None: ...

    @ol.task
    def other() -> None: ...

    other.enqueue()
    with pytest.raises(AssertionError, match="no job of this task at all, of others: other × 1"):
        assert_enqueued(wanted)


def test_a_job_that_should_not_be_there_is_shown(ol: Outlast) -> None:
    @ol.task
    def send(to: str) -> None: ...

    send.enqueue("ann")
    with pytest.raises(AssertionError, match=r"1 × send\(to='ann'\) enqueued, expected none"):
        refute_enqueued(send, "ann")


def test_jobs_beyond_the_first_page_are_looked_at_too(ol: Outlast) -> None:
    @ol.task
    def send(to: str) -> None: ...

    oldest = send.enqueue("ann")
    ol.enqueue(*(send.job("bob") for _ in range(1001)))
    assert assert_enqueued(send, "ann").id == oldest.id
    with pytest.raises(AssertionError, match=r"1 × send\(to='ann'\)"):
        refute_enqueued(send, "ann")


def test_options_are_compared_if_given(ol: Outlast) -> None:
    @ol.task
    def send() -> None: ...

    at = datetime(2040, 1, 1, tzinfo=UTC)
    send.using(queue="slow", priority=5, tenant="acme", delay=600).enqueue()
    send.using(at=at).enqueue()
    assert_enqueued(send.using(queue="slow", priority=5, tenant="acme", delay=600))
    assert_enqueued(send.using(at=at))
    refute_enqueued(send.using(queue="fast"))
    refute_enqueued(send.using(delay=60))


def test_a_job_that_has_run_was_enqueued_all_the_same(ol: Outlast) -> None:
    @ol.task
    def send() -> None: ...

    send.enqueue()
    drain(ol)
    assert assert_enqueued(send).state == "succeeded"


def test_a_secret_is_not_compared_and_not_shown(ol: Outlast) -> None:
    @ol.task
    def charge(user: int, card: Annotated[str, Secret]) -> None: ...

    charge.enqueue(7, "4242")
    assert_enqueued(charge, 7, "4242")
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(charge, 8, "4242")
    assert "4242" not in str(failed.value)


def test_a_function_and_an_unknown_parameter_are_refused(ol: Outlast) -> None:
    @ol.task
    def send(to: str) -> None: ...

    with pytest.raises(InvalidOption, match="must be a task"):
        assert_enqueued(print)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no parameter 'too'"):
        assert_enqueued(send, too="ann")
