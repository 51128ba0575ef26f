"""One-time links in the tables: used once, whatever races; refused when they are not good."""

from __future__ import annotations

import pytest

from outlast import JobNotFound, LinkRefused, TooLate
from outlast.model.ids import new_job_id
from outlast.model.signal_link import LinkRecord, NewLink, is_signed, new_link
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.job_actions import cancel
from outlast.ops.signal_links import answer_link, create_link, link_of, links, revoke_link
from outlast.ops.signals import NewSignal, send_signal
from outlast.ops.wait_report import signals
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.jobs import put, table
from tests.store.test_waits import take_all
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def made(
    run: Run, job: str, key: str | None = None, expires: float = 60, reach: Access = ALL_JOBS
) -> tuple[LinkRecord, str]:
    new = new_link(job, "go", {"Yes": True, "No": False}, expires, "", key)
    return run(create_link, new, "somebody", take_all, lambda task, name: None, reach)  # type: ignore[no-any-return]


def refused(run: Run, link: LinkRecord, value: str = "true") -> str:
    with pytest.raises(LinkRefused) as error:
        run(answer_link, link.id, value, new_job_id(), take_all)
    return error.value.state


def test_a_link_is_found_by_its_secret_which_is_not_stored(run: Run, database: Database) -> None:
    """R247: what the table has is a hash; another's secret or a changed one is none of ours."""
    link, secret = made(run, put(run)[0].id)
    found = run(link_of, secret)
    assert (found.id, found.state, found.choices) == (link.id, "good", link.choices)
    assert run(link_of, secret[:-1] + ("A" if secret[-1] != "A" else "B")) is None
    stored = str(database.rows(f"SELECT * FROM {table(database, 'signal_link')}"))
    assert secret not in stored and secret[:32] not in stored
    assert not is_signed(b"another key", secret)


def test_of_many_uses_at_once_one_sends_the_signal(store: Store) -> None:
    """R247: the others are refused, and one signal is kept."""
    link, _ = made(store.run, put(store.run)[0].id)
    sent: list[str] = []

    def use(number: int) -> None:
        try:
            store.run(answer_link, link.id, "true", new_job_id(), take_all)
            sent.append("sent")
        except LinkRefused as error:
            sent.append(error.state)

    all_at_once(8, use)
    assert sorted(sent) == ["sent", *["used"] * 7]
    [one] = store.run(signals, link.job)
    assert one.sent_by == f"link {link.id}"


def test_a_use_whose_response_was_lost_is_the_same_use(run: Run) -> None:
    """R170, R247: the store restarts the operation after a broken connection."""
    link, _ = made(run, put(run)[0].id)
    for _ in range(2):
        run(answer_link, link.id, "true", "one request", take_all)
    assert len(run(signals, link.job)) == 1
    assert refused(run, link) == "used"


def test_a_link_that_was_made_before_its_response_was_lost_is_the_same_link(run: Run) -> None:
    """R170: the address that the caller gets is the one that is stored."""
    new = NewLink(put(run)[0].id, "go", None, 60.0)
    first, second = (
        run(create_link, new, "somebody", take_all, lambda task, name: None) for _ in range(2)
    )
    assert first[1] == second[1] and run(link_of, first[1]).id == new.id
    assert len(run(links, new.job)) == 1


def test_links_that_are_not_good_are_refused_with_the_reason(run: Run) -> None:
    """R247: revoked, expired by the database's clock, answered by another link, job ended."""
    job = put(run)[0].id
    revoked, _ = made(run, job)
    assert run(revoke_link, revoked.id, "somebody").state == "revoked"
    assert run(revoke_link, revoked.id, "somebody").state == "revoked"
    assert refused(run, revoked) == "revoked"
    late, secret = made(run, job, expires=1e-6)
    eventually(lambda: run(link_of, secret).state == "expired")  # the clock has ticks
    assert refused(run, late) == "expired"
    yes, no = made(run, job, "one question")[0], made(run, job, "one question")[0]
    run(answer_link, yes.id, "true", "a", take_all)
    assert refused(run, no, "false") == refused(run, no, "true") == "answered"
    assert run(revoke_link, yes.id, "somebody").state == "used"
    ended, secret = made(run, job)
    run(cancel, job, "somebody", "")
    assert run(link_of, secret).state == refused(run, ended) == "ended"
    with pytest.raises(TooLate):
        made(run, job)
    assert len(run(signals, job)) == 1


def test_a_link_is_made_for_a_job_in_reach(run: Run) -> None:
    """R145, R247."""
    with pytest.raises(JobNotFound):
        made(run, put(run)[0].id, reach=Access("another"))
    with pytest.raises(JobNotFound):
        made(run, new_job_id())


def test_of_many_links_the_latest_are_listed(run: Run) -> None:
    """R247: the older ones expire first; one that is good must be seen to be revoked."""
    job = put(run)[0].id
    made_ids = [made(run, job)[0].id for _ in range(102)]
    assert [link.id for link in run(links, job)] == made_ids[2:]


def test_of_many_signals_the_latest_are_listed(run: Run) -> None:
    """The earlier ones were taken; one that nothing takes must be seen."""
    job = put(run)[0].id
    for n in range(102):
        run(send_signal, NewSignal(job, "go", str(n), f"key {n}"), "somebody", take_all)
    assert [signal.key for signal in run(signals, job)] == [f"key {n}" for n in range(2, 102)]
