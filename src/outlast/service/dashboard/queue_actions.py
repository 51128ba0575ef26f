"""What people do to a queue: pause it, resume it, have it keep what has ended less long."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...model.retry import LONGEST
from ...model.tokens import Scope
from ...model.words import count, seconds_in, typed
from ...ops import report
from ..api.asked import BreakerBody, KeepBody, QueueBody, Reason
from ..api.queues import close_queue_breaker, keep_queue, need, pause_queue, resume_queue
from ..calls import Call
from .acting import Blank, Question, ask, done, form, refused
from .pages import acts, seen
from .words import duration


class KeepForm(QueueBody):
    keep: Reason = ""  # a span as it is typed; empty: as long as all others


async def ask_pause_queue(call: Call) -> Response:
    consequence = (
        "No more of its jobs will be claimed, by any worker. Those that run go on to their end, and"
        " new ones may be added; they wait until it is resumed."
    )
    return await ask(call, _question(call, "pause", consequence))


async def ask_resume_queue(call: Call) -> Response:
    return await ask(
        call, _question(call, "resume", "Its jobs will be claimed again, from now on.")
    )


async def ask_keep_queue(call: Call) -> Response:
    kept = call.ol.retention
    consequence = (
        f"All queues keep what succeeded for {duration(kept.keep_succeeded)} and what was cancelled"
        f" for {duration(kept.keep_cancelled)}, as this service is set. This one can let go of both"
        " sooner; dead jobs stay in any case. What is older by then is removed for good."
    )
    question = _question(call, "keep", consequence)
    told = await call.ol.store.arun(report.queue_settings)
    now = told[call.query.queue].keep if call.query.queue in told else None
    hint = "Such as 30m, 2h or 1d; empty: as long as all others."
    blank = Blank("keep", "Keep them for", "" if now is None else typed(now), hint)
    title = f"How long does {call.query.queue} keep what has ended?"
    return await ask(call, replace(question, title=title, button="Set it", blank=blank))


async def do_pause_queue(call: Call) -> Response:
    asked = await form(call, QueueBody)
    await pause_queue(replace(call, body=asked))
    said = f"The queue {asked.queue} is paused: its running jobs go on."
    return await done(call, said, "/queues")


async def do_resume_queue(call: Call) -> Response:
    asked = await form(call, QueueBody)
    await resume_queue(replace(call, body=asked))
    return await done(
        call, f"The queue {asked.queue} is resumed: its jobs are claimed again.", "/queues"
    )


async def ask_close_breaker(call: Call) -> Response:
    consequence = (
        "All jobs of the tasks whose calls have stopped are claimed again, at once. A breaker also"
        " closes by itself, when a probe succeeds; and it opens again if what the task depends on"
        " is still away."
    )
    question = _question(call, "close-breaker", consequence)
    title = f"Close the open breakers of {call.query.queue}?"
    return await ask(call, replace(question, title=title, button="Close them"))


async def do_close_breaker(call: Call) -> Response:
    asked = await form(call, QueueBody)
    body = BreakerBody(queue=asked.queue, task=None)
    told = await close_queue_breaker(replace(call, body=body))
    said = f"{count(told['closed'], 'breaker')} of the queue {asked.queue} closed."
    return await done(call, said, "/queues")


async def do_keep_queue(call: Call) -> Response:
    asked = await form(call, KeepForm)
    need(call, asked.queue)
    wanted = asked.keep.strip()
    keep = seconds_in(wanted) if wanted else None
    if wanted and (keep is None or keep > LONGEST):
        said = f"Nothing was done: {wanted} is no span of time; write 30m, 2h or 1d."
        return await refused(call, said, "/queues")
    await keep_queue(replace(call, body=KeepBody(queue=asked.queue, keep=keep)))
    how_long = "as long as all others" if keep is None else f"for {duration(keep)} at the most"
    return await done(call, f"The queue {asked.queue} keeps what has ended {how_long}.", "/queues")


def _question(call: Call, verb: str, consequence: str) -> Question:
    asked: QueueBody = call.query
    need(call, asked.queue)
    return Question(
        title=f"{verb.capitalize()} the queue {asked.queue}?",
        consequence=consequence,
        button=f"{verb.capitalize()} it",
        path=f"/queues/{verb}",
        back="/queues",
        fields={"queue": asked.queue},
    )


ROUTES = (
    seen("/queues/pause", ask_pause_queue, "Pause a queue?", query=QueueBody, everyone=True,
         scope=Scope.ADMIN),
    seen("/queues/resume", ask_resume_queue, "Resume a queue?", query=QueueBody, everyone=True,
         scope=Scope.ADMIN),
    seen("/queues/keep", ask_keep_queue, "How long does a queue keep what has ended?",
         query=QueueBody, everyone=True, scope=Scope.ADMIN),
    seen("/queues/close-breaker", ask_close_breaker, "Close a queue's breakers?", query=QueueBody,
         everyone=True, scope=Scope.ADMIN),
    acts("/queues/close-breaker", do_close_breaker, "Close a queue's breakers", everyone=True),
    acts("/queues/pause", do_pause_queue, "Pause a queue", everyone=True),
    acts("/queues/resume", do_resume_queue, "Resume a queue", everyone=True),
    acts("/queues/keep", do_keep_queue, "Say how long a queue keeps what has ended", everyone=True),
)  # fmt: skip
