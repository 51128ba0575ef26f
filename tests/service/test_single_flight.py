"""What many ask at once is asked once."""

from __future__ import annotations

import asyncio

import pytest

from outlast.single_flight import SingleFlight


async def test_many_get_the_answer_to_one_question() -> None:
    once: SingleFlight[int] = SingleFlight()
    asked: list[int] = []
    go = asyncio.Event()

    async def question() -> int:
        asked.append(1)
        await go.wait()
        return len(asked)

    waiting = [asyncio.create_task(once.run("it", question)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one who leaves takes nobody's answer away
    go.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert answers[1:] == [1] * 49 and len(asked) == 1
    assert await once.run("it", question) == 2, "and later it is asked anew"


async def test_what_goes_wrong_is_told_to_all_and_forgotten() -> None:
    once: SingleFlight[int] = SingleFlight()

    async def fails() -> int:
        raise ValueError("no")

    found = await asyncio.gather(*(once.run("it", fails) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in found] == ["no"] * 3
    with pytest.raises(ValueError):
        await once.run("it", fails)


def test_a_question_of_a_loop_that_has_ended_is_asked_again() -> None:
    once: SingleFlight[int] = SingleFlight()

    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    async def leave() -> None:
        once.start("it", never)

    async def answer() -> int:
        return 7

    asyncio.run(leave())
    assert asyncio.run(once.run("it", answer)) == 7
