"""How far back charts go: an hour of short spans; a day and a week of long ones, up to now."""

from __future__ import annotations

import re

import pytest

from outlast import Outlast
from outlast.ops import statistics
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.operation import Op, Statement
from outlast.ops.statistics import LONG_SPAN_S, OTHERS, SPAN_S, StatisticsRow
from outlast.service import service
from outlast.service.dashboard.overview import current_rates
from outlast.service.dashboard.ranges import (
    DAY,
    HOUR,
    WEEK,
    Range,
    RangeStep,
    group_lines,
    latest_steps,
    merge_steps,
)
from outlast.service.dashboard.trends import trend_points
from tests.service.dashboard.looking import Browser
from tests.service.serving import Served


def keep(span: int, *lines: StatisticsRow) -> Op[None]:
    yield Statement("keep_statistics", rows=[line.row(span) for line in lines])


def whole(ol: Outlast) -> int:
    """The database's time, at the beginning of an hour."""
    return int(ol.store.run(statistics.newest_span)[1]) // 3600 * 3600


def test_steps_add_what_ended_and_keep_the_most_that_there_was() -> None:
    at = 7 * WEEK.step
    lines = [
        StatisticsRow(at, "a", "mail", succeeded=2, depths={"ready": 5}),
        StatisticsRow(at + SPAN_S, "a", "mail", succeeded=3, depths={"ready": 90, "running": 1}),
        StatisticsRow(at + SPAN_S, "b", "mail", dead=1),
        StatisticsRow(at + HOUR.step, "a", "mail", failed=4, depths={"ready": 1}),
    ]
    first, second = group_lines(lines, HOUR).values()
    assert (first.seconds, second.seconds) == (2 * SPAN_S, SPAN_S)
    assert first.lines["a", "mail"].succeeded == 5
    assert first.lines["a", "mail"].depths == {"ready": 90, "running": 1}, "it came and went"
    assert first.lines["b", "mail"].depths is None, "nobody counted"
    (long,) = merge_steps(group_lines(lines, HOUR).items(), LONG_SPAN_S).values()
    assert long.seconds == 3 * SPAN_S and long.lines["a", "mail"].succeeded == 5
    assert long.lines["a", "mail"].failed == 4 and first.lines["a", "mail"].failed == 0


def test_what_nobody_counted_is_a_gap_and_nothing_is_nothing() -> None:
    """A tenant that did nothing is at zero; but not if it may be among all others."""
    quiet, crowded = RangeStep(SPAN_S), RangeStep(SPAN_S)
    quiet.add(StatisticsRow(0, "a", "mail", succeeded=3))
    crowded.add(StatisticsRow(0, *OTHERS, succeeded=3))
    assert quiet.of(Access("b")) == [] and crowded.of(Access("b")) is None
    assert RangeStep().of(ALL_JOBS) is None
    shown = trend_points({3600: quiet}, DAY, 3600.0, ALL_JOBS)
    assert len(shown) == 144 and [one.per_second("succeeded") for one in shown[-2:]] == [None, 0.3]


def test_what_goes_on_now_is_told_by_the_last_minute() -> None:
    """And by nothing, where nobody has counted for a while."""
    lines = [StatisticsRow(at, "a", "mail", succeeded=at // 600) for at in range(0, 1200, SPAN_S)]
    hour = group_lines(lines, HOUR)
    told = current_rates(latest_steps(hour, 1215.0, 60), ALL_JOBS)
    assert told["rate"] == pytest.approx(0.1)
    assert [*latest_steps(hour, 630.0 + 540, 60)] == [1140, 1170]
    assert latest_steps(hour, 1500.0, 60) == {}
    assert current_rates({}, ALL_JOBS)["rate"] == 0.0


@pytest.mark.parametrize("over", [DAY, WEEK], ids=lambda over: over.name)
async def test_a_long_range_goes_up_to_now_and_counts_nothing_twice(
    ol: Outlast, over: Range
) -> None:
    """Long spans as far as there are any, short ones from there on; a step may have both."""
    hour = whole(ol)
    now = hour + 2 * LONG_SPAN_S + 5 * SPAN_S
    run = ol.store.run
    old = [
        StatisticsRow(at, "a", "mail", succeeded=100)
        for at in (hour - 5 * 3600, hour, hour + LONG_SPAN_S)
    ]
    run(keep, LONG_SPAN_S, *old)
    short = range(hour + LONG_SPAN_S, now, SPAN_S)  # of which the first sixty are in a long one
    run(keep, SPAN_S, *(StatisticsRow(at, "a", "mail", succeeded=1) for at in short))
    app = service(ol)
    histories = app.service.live_view.histories
    for _ in range(2):  # what was given away is not changed
        steps = await histories.steps_until(over, now)
        told = [line.succeeded for step in steps.values() for line in step.lines.values()]
        assert sum(told) == 305
        assert sum(step.seconds for step in steps.values()) == 3 * LONG_SPAN_S + 5 * SPAN_S
        shown = trend_points(steps, over, now, ALL_JOBS)
        assert shown[-1].lines and shown[-1].lines[0].succeeded == (5 if over is DAY else 205)
    run(keep, LONG_SPAN_S, StatisticsRow(hour + 2 * LONG_SPAN_S, "a", "mail", succeeded=60))
    histories._known[over.name].read_at -= 3600
    steps = await histories.steps_until(over, now + LONG_SPAN_S)
    assert sum(line.succeeded for one in steps.values() for line in one.lines.values()) == 360
    await app.service.stop()


@pytest.mark.kinds("sqlite")
def test_a_range_is_chosen_by_a_link(served: Served, browser: Browser) -> None:
    """R166: it is the address; whoever sees some of it is shown that."""
    run, hour = served.ol.store.run, whole(served.ol)
    for tenant, number in (("acme", 11), ("other", 500)):
        run(keep, LONG_SPAN_S, StatisticsRow(hour - 7200, tenant, "mail", succeeded=number))
        run(
            keep,
            LONG_SPAN_S,
            StatisticsRow(hour - 3 * 86_400, tenant, "mail", succeeded=10 * number),
        )
    everyone, acme = served.token("read"), served.token("read", tenant="acme")
    for token, path, wanted in (
        (everyone, "/?range=day", "511 jobs"), (everyone, "/?range=week", "5,621 jobs"),
        (acme, "/?range=day", "11 jobs"), (acme, "/?range=week", "121 jobs"),
    ):  # fmt: skip
        text = served.get(path, token).text
        assert f"per second; {wanted}<" in text, (path, wanted)
        assert f'data-live="/live/overview{path[1:]}"' in text
    browser.log_in(acme)
    page = browser.go("/?range=day")
    assert page.links["week"] == "/?range=week"
    assert served.get("/?range=year", everyone).status_code == 422
    with served.http.stream(
        "GET", "/live/overview?range=week", headers={"authorization": f"Bearer {acme}"}
    ) as answer:
        assert any(re.search("; 121 jobs<", line) for line in answer.iter_lines())
