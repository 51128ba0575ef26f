"""Worker processes that can be scraped, and what they say."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support import Process, Processes, eventually
from tests.support.app import PATIENCE, App

ADDRESS = re.compile(r"metrics and health on (http://\S+)")


@dataclass
class Scraped:
    """What one process said, once."""

    text: str
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.values, f"{key} is told twice"
                self.values[key] = sample.value

    def __call__(self, name: str, /, **labels: str) -> float:
        """The sum of all that has at least these labels."""
        labels = {key.removesuffix("_"): value for key, value in labels.items()}
        return sum(self.rows(name, **labels))

    def rows(self, name: str, /, **labels: str) -> list[float]:
        said = labels.items()
        return [v for (n, has), v in self.values.items() if n == name and said <= has]

    def told(self, name: str, label: str) -> set[str]:
        return {dict(has)[label] for (n, has) in self.values if n == name and label in dict(has)}

    @property
    def names(self) -> set[str]:
        return set(re.findall(r"^# HELP (\S+)", self.text, re.MULTILINE))


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: str


def get(address: str, path: str, **headers: str) -> Reply:
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as said:
            return Reply(said.status, dict(said.headers), said.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, dict(error.headers), error.read().decode())


class Asked:
    """One endpoint."""

    def __init__(self, process: Process, address: str) -> None:
        self.process = process
        self.address = address

    def get(self, path: str, **headers: str) -> Reply:
        return get(self.address, path, **headers)

    def scrape(self) -> Scraped:
        reply = self.get("/metrics")
        assert reply.status == 200, reply
        return Scraped(reply.body)

    def moves(self, name: str, to: float = 1.0, /, **labels: str) -> Scraped:
        """Wait until a metric is at least so much."""

        def moved() -> Scraped | None:
            said = self.scrape()
            return said if said(name, **labels) >= to else None

        return eventually(moved, PATIENCE, interval=0.1, message=self.process.output)


class Fleet:
    """The endpoints of a process and of those that it started."""

    def __init__(self, process: Process, number: int) -> None:
        self.process = process
        self.number = number

    def all(self) -> list[Asked]:
        def enough() -> list[str]:
            found = ADDRESS.findall(self.process.output())
            return found if len(found) >= self.number else []

        found = eventually(enough, PATIENCE, message=self.process.output)
        return [Asked(self.process, address) for address in found]

    def of(self, role: str) -> list[Asked]:
        return [one for one in self.all() if one.scrape()("outlast_info", role=role)]


def fleet(processes: Processes, app: App, number: int, *args: object, **settings: Any) -> Fleet:
    """So many workers under a supervisor."""
    return Fleet(start(processes, app, *args, "--processes", number, **settings), number + 1)


def measured(processes: Processes, app: App, *args: object, **settings: Any) -> Asked:
    """One worker."""
    return Fleet(start(processes, app, *args, **settings), 1).all()[0]


def start(processes: Processes, app: App, *args: object, **settings: Any) -> Process:
    return processes.python(
        "outlast", "worker", "tests.metrics.app:ol", "--metrics-port", "0", *args,
        env=app.environment(**settings),
    )  # fmt: skip
