"""The tests of the app, which know neither Celery nor Outlast: a worker runs beside them."""

import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from shop import (
    add,
    app,
    both,
    fail,
    fan,
    fetch,
    flaky,
    later,
    long_job,
    mail_receipt,
    on_error,
    ping,
    thrice,
    total,
)  # fmt: skip

WAIT = 60


def notes():
    with Path(os.environ["SHOP_NOTES"]).open() as file:
        return file.read().splitlines()


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_result():
    result = add.delay(2, y=3)
    assert result.get(timeout=WAIT) == 5
    assert result.ready() and result.successful() and not result.failed()
    assert result.state == result.status == "SUCCESS" and result.result == 5
    assert app.AsyncResult(result.id).get(timeout=WAIT) == 5


def test_an_id_of_ones_own_and_an_unknown_one():
    id = str(uuid.uuid4())
    assert add.apply_async((1, 1), task_id=id).id == id
    assert app.AsyncResult(id).get(timeout=WAIT) == 2
    assert app.AsyncResult(str(uuid.uuid4())).state == "PENDING"


def test_wrong_arguments_are_refused_by_the_caller():
    with pytest.raises(TypeError):
        add.delay()


def test_a_plain_call():
    assert add(1, 2) == 3 and add.s(1)(y=5) == 6


def test_the_task_s_exception_is_raised_by_the_caller():
    result = fail.delay("no stock")
    with pytest.raises(ValueError, match="no stock"):
        result.get(timeout=WAIT)
    assert result.failed() and result.state == "FAILURE" and "no stock" in result.traceback
    assert isinstance(result.get(propagate=False), ValueError)
    until(lambda: f"failure {result.id} ValueError('no stock')" in notes())


def test_self_retry_counts():
    result = flaky.delay(2)
    assert result.get(timeout=WAIT) == 2
    own = [line for line in notes() if result.id in line]
    assert [line for line in own if line.startswith("flaky")] == [
        f"flaky {result.id} {n}" for n in range(3)
    ]
    until(lambda: f"success {result.id}" in notes())
    until(lambda: sum(line.startswith(f"retry {result.id}") for line in notes()) == 2)


def test_retries_end_with_the_exception():
    result = flaky.delay(99)
    with pytest.raises(OSError, match="try 3"):
        result.get(timeout=WAIT)


def test_autoretry_with_backoff():
    result = fetch.delay("http://x")
    with pytest.raises(ConnectionError, match="http://x is away"):
        result.get(timeout=WAIT)
    assert [line for line in notes() if f"fetch {result.id}" in line] == [
        f"fetch {result.id} {n}" for n in range(3)
    ]


def test_a_chain_passes_results_on():
    result = thrice(1).apply_async()
    assert result.get(timeout=WAIT) == 101
    assert result.parent.get(timeout=WAIT) == 4 and result.parent.parent.get(timeout=WAIT) == 2
    assert (add.s(1, 1) | add.s(5) | add.s(3)).delay().get(timeout=WAIT) == 10


def test_a_group_and_a_chord():
    result = both().apply_async()
    assert result.get(timeout=WAIT) == [2, 4] and result.successful()
    assert fan(range(5)).get(timeout=WAIT) == 15
    assert (both() | total.s()).delay().get(timeout=WAIT) == 6
    assert (add.s(1, 1) | both_after() | total.s()).delay().get(timeout=WAIT) == 6


def both_after():
    from shop import group

    return group(add.s(1), add.s(y=1))


def test_delays_and_expiry():
    began = time.time()
    assert add.apply_async((1, 1), countdown=1).get(timeout=WAIT) == 2
    assert time.time() - began >= 0.9
    eta = datetime.now(UTC) + timedelta(seconds=1)
    assert add.apply_async((1, 1), eta=eta).get(timeout=WAIT) == 2
    assert datetime.now(UTC) >= eta
    gone = add.apply_async((1, 1), countdown=1, expires=0.2)
    until(lambda: gone.state == "REVOKED")


def test_a_routed_task_with_any_arguments():
    assert mail_receipt.delay(7, "pen", "ink", to="ada").get(timeout=WAIT) == "ada"
    until(lambda: "mail 7 ['pen', 'ink'] ada" in notes())
    assert mail_receipt.apply_async((8,), queue="celery", priority=3).get(timeout=WAIT) == "nobody"


def test_dates_arrive_as_dates():
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert later.delay(moment).get(timeout=WAIT) == datetime(2026, 2, 1, 12, tzinfo=UTC)


def test_progress(tmp_path):
    result = long_job.delay(str(tmp_path / "go"))
    until(lambda: result.state == "PROGRESS")
    assert result.info == {"current": 1, "total": 4}
    (tmp_path / "go").touch()
    assert result.get(timeout=WAIT) == "done"


def test_links():
    with_link = add.apply_async((1, 1), link=mail_receipt.s("linked"))
    assert with_link.get(timeout=WAIT) == 2
    until(lambda: "mail 2 ['linked'] nobody" in notes())
    broken = fail.apply_async(("x",), link_error=on_error.s())
    until(lambda: f"errback {broken.id} ValueError('x')" in notes())


def test_ignored_results_and_names():
    assert ping.name == "shop.ping" and add.name == "shop.add"
    assert app.send_task("shop.add", (4, 5)).get(timeout=WAIT) == 9
    ping.delay()
