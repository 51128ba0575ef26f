"""Our backend in the place of Django's two, whose tests are to run against it."""

from __future__ import annotations

from typing import Any

from outlast.integrations.django import TaskBackend
from outlast.integrations.django.drain import InlineDrain


class InPlaceOfDummy(TaskBackend):
    """Jobs are enqueued and not run; the tests look at the results that `enqueue` gave."""

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.results.append(made := super().enqueue(task, args, kwargs))
        return made

    def clear(self) -> None:
        self.results.clear()


class InPlaceOfImmediate(TaskBackend):
    """Jobs are run by `InlineDrain` as soon as they are enqueued, as a worker would."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        made = super().enqueue(task, args, kwargs)
        InlineDrain(self.app).run(scheduled=False, limit=10)
        made.refresh()
        return made
