"""What many ask at once is asked once."""

from __future__ import annotations

import asyncio

import pytest

from outlast.service.once import Once


async def test_many_get_the_answer_to_one_question() -> None:
    once: Once[int] = Once()
    asked: list[int] = []
    go = asyncio.Event()

    async def question() -> int:
        asked.append(1)
        await go.wait()
        return len(asked)

    waiting = [asyncio.create_task(once.ask("it", question)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one who leaves takes nobody's answer away
    go.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert answers[1:] == [1] * 49 and len(asked) == 1
    assert await once.ask("it", question) == 2, "and later it is asked anew"


async def test_what_goes_wrong_is_told_to_all_and_forgotten() -> None:
    once: Once[int] = Once()

    async def fails() -> int:
        raise ValueError("no")

    found = await asyncio.gather(*(once.ask("it", fails) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in found] == ["no"] * 3
    with pytest.raises(ValueError):
        await once.ask("it", fails)


def test_a_question_of_a_loop_that_has_ended_is_asked_again() -> None:
    once: Once[int] = Once()

    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    async def leave() -> None:
        once.begin("it", never)

    async def answer() -> int:
        return 7

    asyncio.run(leave())
    assert asyncio.run(once.ask("it", answer)) == 7
