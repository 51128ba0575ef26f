"""A bad setting stops a command before it begins, and is named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

import pytest
from click.testing import CliRunner

from outlast.cli import outlast
from outlast.cli.process_options import PORT_VARIABLES, misread_ports
from outlast.cli.serve import serve
from outlast.cli.worker import unknown_variables
from outlast.cli.worker import worker as worker_command
from outlast.model.settings import RetentionSettings, StoreSettings, WorkerSettings
from tests.cli.conftest import Program, patiently


def bad_values(kind: type) -> list[Any]:
    """Every setting with a value of the wrong type, below its range, above it, and not finite."""
    return [
        pytest.param(spec.name, value, id=f"{spec.name}={value}")
        for spec in fields(kind)
        for value in _bad(spec)
    ]


def _bad(spec: Field[Any]) -> Iterator[str]:
    yield from ("much", "nan")
    if not isinstance(spec.default, bool):
        low, high = spec.metadata["low"], spec.metadata["high"]
        yield from ("inf", "-inf", "1e999", str(type(spec.default)(low) - 1))
        if high != math.inf:
            yield str(type(spec.default)(high) + 1)


def ends_naming(name: str, arguments: list[str], **env: str) -> None:
    result = CliRunner().invoke(outlast, arguments, env=env)
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit), result.exception
    said = result.stderr
    assert name in said or name.replace("_", "-") in said or name.upper() in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("name", "value"), bad_values(WorkerSettings))
def test_a_bad_flag_of_a_worker_is_refused_and_named(name: str, value: str) -> None:
    """R160, R202: before the app is even looked for."""
    ends_naming(name, ["worker", "no_such_app", f"--{name.replace('_', '-')}={value}"])


@pytest.mark.parametrize(("name", "value"), bad_values(WorkerSettings))
def test_a_bad_variable_of_a_worker_is_refused_and_named(name: str, value: str) -> None:
    """R160, R202"""
    ends_naming(name, ["worker", "no_such_app"], **{f"OUTLAST_{name.upper()}": value})


@pytest.mark.parametrize(
    ("name", "value"), [*bad_values(StoreSettings), *bad_values(RetentionSettings)]
)
def test_a_bad_variable_is_refused_by_every_command(name: str, value: str) -> None:
    """R160, R202"""
    ends_naming(name, ["jobs"], **{f"OUTLAST_{name.upper()}": value})


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--lease", "3", "--renew-every", "2"], "renew_every"),
        (["--renew-every", "6"], "renew_every"),
        (["--poll-min", "2"], "poll_min"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(flags: list[str], named: str) -> None:
    """R160: a renewal that comes too late, a shortest wait that is longer than the longest."""
    ends_naming(named, ["worker", "no_such_app", *flags])


@pytest.mark.parametrize(("lease", "renew_every"), [(3.0, 1.0), (0.2, 0.2 / 3), (60.0, 5.0)])
def test_renewals_follow_a_lease_that_is_given_alone(lease: float, renew_every: float) -> None:
    """R160: by whichever way it is given."""
    assert WorkerSettings.of({}, lease=lease).renew_every == renew_every
    assert WorkerSettings.of({"OUTLAST_LEASE": str(lease)}).renew_every == renew_every
    assert WorkerSettings.of({}, lease=lease, renew_every=0.06).renew_every == 0.06
    said = CliRunner().invoke(outlast, ["worker", "no_such_app", "--lease", str(lease)])
    assert "renew_every" not in said.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--processes", "0"],
        ["--processes", "many"],
        ["--log-level", "loud"],
        ["--log-format", "xml"],
        ["--leese", "5"],
    ],
)
def test_a_bad_flag_beside_the_settings_is_refused_and_named(flags: list[str]) -> None:
    """R160, R202: unknown keys are rejected."""
    ends_naming(flags[0], ["worker", "no_such_app", *flags])


@pytest.mark.parametrize("schema", ["Upper", "1st", "a-b", "x" * 49, "a;drop"])
def test_a_bad_schema_is_refused_and_named(schema: str) -> None:
    """R160"""
    ends_naming("schema", ["jobs", "--schema", schema])


@pytest.mark.parametrize("queues", ["a,,b", "a\x07b"])
@pytest.mark.kinds("sqlite")
def test_a_bad_queue_is_refused_and_named(program: Program, queues: str) -> None:
    """R160"""
    worker = program.worker("--queues", queues)
    assert worker.wait() == 1
    assert "The option queue " in worker.output()
    assert "Traceback" not in worker.output()


@pytest.mark.kinds("sqlite")
def test_a_worker_tells_every_value_that_is_in_force(program: Program) -> None:
    """R202: flag over variable over default; those that differ from the default in the first line,
    all of them at debug level."""
    flags = ["--grace", "3", "--queues", "b,a", "--log-level", "debug"]
    worker = program.worker(*flags, OUTLAST_LEASE="2", OUTLAST_GRACE="9")
    line = patiently(
        lambda: "DEBUG outlast.worker: settings" in worker.output() and worker.output()
    )
    assert ", concurrency=32, lease=2.0, renew_every=0.3, poll_max=0.2, grace=3.0\n" in line
    assert "queues: a, b" in line
    in_force = {"grace": "3.0", "lease": "2.0", "renew_every": "0.3", "concurrency": "32"}
    for name, value in in_force.items():
        assert f"{name}={value}" in line
    assert all(f"{spec.name}=" in line for spec in fields(WorkerSettings))


def test_a_misspelt_variable_is_noticed() -> None:
    """R202: but variables that a platform sets by itself are none of our business."""
    said = unknown_variables(
        {"OUTLAST_LEESE": "5", "OUTLAST_SERVICE_HOST": "10.0.0.1", "LEASE": "7"}
    )
    assert said == [
        "OUTLAST_LEESE is not a setting of Outlast and has no effect; did you mean OUTLAST_LEASE?"
    ]


@pytest.mark.parametrize("variable", PORT_VARIABLES)
def test_what_kubernetes_says_of_a_service_called_outlast_breaks_nothing(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R202: `OUTLAST_PORT=tcp://…` is no port of ours. It is passed over, and told of; what is
    neither a port nor such an address is refused."""
    command, usual = {
        "OUTLAST_PORT": (serve, 8642),
        "OUTLAST_METRICS_PORT": (worker_command, None),
    }[variable]
    (option,) = (param for param in command.params if param.envvar == variable)
    for value, meant in (("tcp://10.96.0.7:8642", usual), ("9000", 9000)):
        monkeypatch.setenv(variable, value)
        made = command.make_context("outlast", ["shop:ol"])
        assert made.params[str(option.name)] == meant
    assert variable in misread_ports({variable: "tcp://10.96.0.7:8642"})[0]
    assert misread_ports({variable: "9000"}) == []
    for bad in ("http", "65536", "http://10.0.0.1"):
        ends_naming(variable, [str(command.name), "no_such_app"], **{variable: bad})


def test_no_setting_is_taken_for_misspelt() -> None:
    known = [
        f"OUTLAST_{spec.name.upper()}"
        for kind in (WorkerSettings, StoreSettings, RetentionSettings)
        for spec in fields(kind)
    ]
    assert unknown_variables(dict.fromkeys([*known, "OUTLAST_URL", "OUTLAST_LIFELINE"], "")) == []
