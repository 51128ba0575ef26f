"""How far back charts go: an hour of short spans; a day and a week of long ones, up to now."""

from __future__ import annotations

import re

import pytest

from outlast import Outlast
from outlast.ops import statistics
from outlast.ops.reach import EVERYTHING, Reach
from outlast.ops.statement import Op, Statement
from outlast.ops.statistics import LONG_SPAN, OTHERS, SPAN, Line
from outlast.service import service
from outlast.service.dashboard.overview import pace
from outlast.service.dashboard.ranges import DAY, HOUR, WEEK, Range, Step, gathered, latest, merged
from outlast.service.dashboard.trends import moments
from tests.service.dashboard.looking import Browser
from tests.service.serving import Served


def keep(span: int, *lines: Line) -> Op[None]:
    yield Statement("keep_statistics", rows=[line.row(span) for line in lines])


def whole(ol: Outlast) -> int:
    """The database's time, at the beginning of an hour."""
    return int(ol.store.run(statistics.standing)[1]) // 3600 * 3600


def test_steps_add_what_ended_and_keep_the_most_that_there_was() -> None:
    at = 7 * WEEK.step
    lines = [
        Line(at, "a", "mail", succeeded=2, depths={"ready": 5}),
        Line(at + SPAN, "a", "mail", succeeded=3, depths={"ready": 90, "running": 1}),
        Line(at + SPAN, "b", "mail", dead=1),
        Line(at + HOUR.step, "a", "mail", failed=4, depths={"ready": 1}),
    ]
    first, second = gathered(lines, HOUR).values()
    assert (first.seconds, second.seconds) == (2 * SPAN, SPAN)
    assert first.lines["a", "mail"].succeeded == 5
    assert first.lines["a", "mail"].depths == {"ready": 90, "running": 1}, "it came and went"
    assert first.lines["b", "mail"].depths is None, "nobody counted"
    (long,) = merged(gathered(lines, HOUR).items(), LONG_SPAN).values()
    assert long.seconds == 3 * SPAN and long.lines["a", "mail"].succeeded == 5
    assert long.lines["a", "mail"].failed == 4 and first.lines["a", "mail"].failed == 0


def test_what_nobody_counted_is_a_gap_and_nothing_is_nothing() -> None:
    """A tenant that did nothing is at zero; but not if it may be among all others."""
    quiet, crowded = Step(SPAN), Step(SPAN)
    quiet.take(Line(0, "a", "mail", succeeded=3))
    crowded.take(Line(0, *OTHERS, succeeded=3))
    assert quiet.of(Reach("b")) == [] and crowded.of(Reach("b")) is None
    assert Step().of(EVERYTHING) is None
    shown = moments({3600: quiet}, DAY, 3600.0, EVERYTHING)
    assert len(shown) == 144 and [one.per_second("succeeded") for one in shown[-2:]] == [None, 0.3]


def test_what_goes_on_now_is_told_by_the_last_minute() -> None:
    """And by nothing, where nobody has counted for a while."""
    lines = [Line(at, "a", "mail", succeeded=at // 600) for at in range(0, 1200, SPAN)]
    hour = gathered(lines, HOUR)
    told = pace(latest(hour, 1215.0, 60), EVERYTHING)
    assert told["rate"] == pytest.approx(0.1)
    assert [*latest(hour, 630.0 + 540, 60)] == [1140, 1170]
    assert latest(hour, 1500.0, 60) == {}
    assert pace({}, EVERYTHING)["rate"] == 0.0


@pytest.mark.parametrize("over", [DAY, WEEK], ids=lambda over: over.name)
async def test_a_long_range_goes_up_to_now_and_counts_nothing_twice(
    ol: Outlast, over: Range
) -> None:
    """Long spans as far as there are any, short ones from there on; a step may have both."""
    hour = whole(ol)
    now = hour + 2 * LONG_SPAN + 5 * SPAN
    run = ol.store.run
    old = [Line(at, "a", "mail", succeeded=100) for at in (hour - 5 * 3600, hour, hour + LONG_SPAN)]
    run(keep, LONG_SPAN, *old)
    short = range(hour + LONG_SPAN, now, SPAN)  # of which the first sixty are in a long one
    run(keep, SPAN, *(Line(at, "a", "mail", succeeded=1) for at in short))
    app = service(ol)
    histories = app.service.live.histories
    for _ in range(2):  # what was given away is not changed
        steps = await histories.upto(over, now)
        told = [line.succeeded for step in steps.values() for line in step.lines.values()]
        assert sum(told) == 305
        assert sum(step.seconds for step in steps.values()) == 3 * LONG_SPAN + 5 * SPAN
        shown = moments(steps, over, now, EVERYTHING)
        assert shown[-1].lines and shown[-1].lines[0].succeeded == (5 if over is DAY else 205)
    run(keep, LONG_SPAN, Line(hour + 2 * LONG_SPAN, "a", "mail", succeeded=60))
    histories._known[over.name].read_at -= 3600
    steps = await histories.upto(over, now + LONG_SPAN)
    assert sum(line.succeeded for one in steps.values() for line in one.lines.values()) == 360
    await app.service.stop()


@pytest.mark.kinds("sqlite")
def test_a_range_is_chosen_by_a_link(served: Served, browser: Browser) -> None:
    """R166: it is the address; whoever sees some of it is shown that."""
    run, hour = served.ol.store.run, whole(served.ol)
    for tenant, number in (("acme", 11), ("other", 500)):
        run(keep, LONG_SPAN, Line(hour - 7200, tenant, "mail", succeeded=number))
        run(keep, LONG_SPAN, Line(hour - 3 * 86_400, tenant, "mail", succeeded=10 * number))
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
