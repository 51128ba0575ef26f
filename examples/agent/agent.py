"""A support agent whose model calls and tools are durable steps: a worker that is killed repeats
none that was stored. `python run.py` plays it; docs/explanation/durable-agents.md explains it.

    permit ─▶ model 1 ─▶ tool ─▶ permit ─▶ model 2 ─▶ approval by link ─▶ tool ─▶ … ─▶ answer
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any, TypedDict

import shop
from openai import AsyncOpenAI
from toolbox import NEED_APPROVAL, SPECIFICATIONS, TOOLS

from outlast import Context, Outlast, SignalTimeout

MODEL = os.environ.get("AGENT_MODEL", "stand-in")
MAX_TURNS = 12
SYSTEM = "You help customers of a shop. Look things up before you act."

ol = Outlast()
ol.queue("budget", lane_rate=os.environ.get("AGENT_BUDGET", "60/m"))  # model calls of a customer


class Answer(TypedDict):
    answer: str
    turns: list[str]  # the text of each model call


@ol.task(queue="budget", lane=lambda customer: customer, max_crashes=1000)
def permit(customer: str) -> None:
    """The right to one model call: it starts when the customer's lane has a token."""


@ol.task(signals={"approval": bool}, max_crashes=1000)  # far more kills than yours has
async def agent(customer: str, request: str, ctx: Context) -> Answer:
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": request},
    ]
    for turn in range(1, MAX_TURNS + 1):
        await within_budget(ctx, turn, customer)
        reply = await ctx.step(f"model {turn}", ask_model, ctx, turn, messages)
        messages.append(reply)
        for n, call in enumerate(reply.get("tool_calls", [])):
            result = await use_tool(ctx, f"{turn}.{n}", call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if "tool_calls" not in reply:
            said = [one["content"] for one in messages if one["role"] == "assistant"]
            return {"answer": said[-1], "turns": said}
    raise RuntimeError(f"no answer after {MAX_TURNS} model calls")


async def within_budget(ctx: Context, turn: int, customer: str) -> None:
    """Wait, without a slot, until the customer's lane allows one more model call."""
    key = ctx.token(f"permit {turn}")  # a worker that is killed here enqueues it once
    ask = permit.using(key=key).enqueue
    await ctx.wait_for(await ctx.step(f"permit {turn}", lambda: ask(customer).id))


async def ask_model(ctx: Context, turn: int, messages: list[Any]) -> dict[str, Any]:
    """One model call; readers get its tokens as they come."""
    client = AsyncOpenAI()  # of $OPENAI_BASE_URL and $OPENAI_API_KEY
    request = client.chat.completions.stream(model=MODEL, messages=messages, tools=SPECIFICATIONS)
    async with client, request as stream:
        async for event in stream:
            if event.type == "content.delta":
                ctx.stream({"turn": turn, "token": event.delta})
        choice = (await stream.get_final_completion()).choices[0]
    if choice.finish_reason is None:
        raise ConnectionError("the model's response was cut off")
    reply = {"role": "assistant", "content": choice.message.content or ""}
    calls = [
        {"id": call.id, "type": "function", "function": named(call.function)}
        for call in choice.message.tool_calls or []
    ]
    return reply | ({"tool_calls": calls} if calls else {})


def named(function: Any) -> dict[str, str]:
    return {"name": function.name, "arguments": function.arguments}


async def use_tool(ctx: Context, place: str, function: dict[str, str]) -> str:
    """Run a tool as a step, under a key that is the same on every attempt."""
    name, args = function["name"], json.loads(function["arguments"])
    ctx.stream({"tool": place, "name": name, "args": args})
    if name in NEED_APPROVAL and not await approved(ctx, place, f"{name} {args}"):
        return "refused by the manager"
    call = partial(TOOLS[name], key=ctx.token(place), **args)
    result: str = await ctx.step(f"tool {place} {name}", call)
    return result


async def approved(ctx: Context, place: str, question: str) -> bool:
    """Mail a one-time link to the manager, and wait for days, without a slot, for the click."""

    def mail_link() -> None:  # in one step, whose stored result has no link in it
        buttons = {"Approve": True, "Reject": False}
        key = ctx.token(f"approval {place}")  # if two were mailed, the first that is used counts
        link = ol.signal_link(ctx.job, "approval", choices=buttons, text=question, key=key)
        shop.send_mail(key=key, to="manager", text=f"{question}? {link.url}")

    await ctx.step(f"ask {place}", mail_link)
    try:
        ok: bool = await ctx.wait("approval", timeout="8d")  # the link expires before: after 7 d
    except SignalTimeout:
        ok = False
    return ok
