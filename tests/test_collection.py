"""How tests are collected, skipped and cleaned up: pytest itself, run on small test files."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support import eventually
from tests.support.processes import ROOT, alive

REQUIRE_ALL = {"OUTLAST_REQUIRE_ALL": "1"}


class Small:
    """A project of one test file, with our configuration and our conftest."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(
        self, body: str, *options: str, folder: str = "tests", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        with self.start(body, *options, folder=folder, env=env) as process:
            output, _ = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def start(
        self, body: str, *options: str, folder: str = "tests", env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        file = self.root / folder / "test_small.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(body))
        configuration = [f"--rootdir={self.root}", "-c", str(ROOT / "pyproject.toml")]
        plugins = ["-p", "tests.conftest", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "OUTLAST_"))}
        ours = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *configuration, *plugins, *options, str(file)],
            cwd=self.root,
            env=kept | ours | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path)


@pytest.mark.parametrize(
    ("mark", "options", "kinds"),
    [
        ("", [], ["sqlite", "postgres"]),
        ("", ["--through-pgbouncer"], ["sqlite", "postgres", "pgbouncer"]),
        ('@pytest.mark.kinds("sqlite", "pgbouncer")', [], ["sqlite", "pgbouncer"]),
    ],
)
def test_a_test_runs_on_both_databases_and_through_pgbouncer_when_asked(
    small: Small, mark: str, options: list[str], kinds: list[str]
) -> None:
    body = f"import pytest\n{mark}\ndef test_a(database): ..."
    run = small.run(body, "--collect-only", "-q", *options)
    collected = [line for line in run.stdout.splitlines() if "::" in line]
    assert collected == [f"tests/test_small.py::test_a[{kind}]" for kind in kinds]


PAIRS = """
    import pytest
    @pytest.mark.parametrize("colour", ["sync", "async"])
    def test_a(database, colour): ...
    @pytest.mark.slow_on("postgres")
    def test_b(database): ...
    @pytest.mark.slow
    def test_c(): ...
    @pytest.mark.kinds("postgres", "pgbouncer")
    def test_d(database): ...
    def test_e(database, processes): ...
    def test_h(database, processes): ...
    @pytest.mark.slow_on()
    def test_everywhere(database, processes): ...
"""
DEFAULT_TIER = ["test_a[sqlite-sync]", "test_a[postgres-async]", "test_b[sqlite]"]
DEFAULT_TIER += ["test_d[postgres]", "test_e[postgres]", "test_h[sqlite]"]
DEFAULT_TIER += ["test_everywhere[sqlite]", "test_everywhere[postgres]"]
SLOW_TIER = ["test_a[sqlite-async]", "test_a[postgres-sync]", "test_b[postgres]", "test_c"]
SLOW_TIER += ["test_d[pgbouncer]", "test_e[sqlite]", "test_h[postgres]"]


def test_each_test_is_in_the_default_run_or_slow(small: Small) -> None:
    """Both databases and both colours are in the default run; the other pairs are slow. Of two
    databases on which processes start, one is, unless a mark says otherwise."""
    for options, wanted in (([], DEFAULT_TIER), (["-m", "slow"], SLOW_TIER)):
        run = small.run(PAIRS, "--collect-only", "-q", *options)
        collected = {line.partition("::")[2] for line in run.stdout.splitlines() if "::" in line}
        assert collected == set(wanted), run.stdout


SKIPS = """
    import pytest
    from tests.support import skip_or_fail
    def test_a(): pytest.skip("no broker")
    @pytest.mark.skip("no broker")
    def test_b(): ...
    def test_c(): skip_or_fail("no broker")
"""


@pytest.mark.parametrize(
    ("body", "number"),
    [(SKIPS, 3), ("import pytest\npytest.skip('no broker', allow_module_level=True)", 1)],
)
def test_a_skip_fails_where_everything_is_required(small: Small, body: str, number: int) -> None:
    lenient = small.run(body, "-rs")
    strict = small.run(body, env=REQUIRE_ALL)
    assert f"{number} skipped" in lenient.stdout, lenient.stdout
    *_, summary = strict.stdout.strip().splitlines()
    counted = re.findall(r"(\d+) (?:failed|error)", summary)
    assert sum(map(int, counted)) == number, strict.stdout
    assert strict.stdout.count("no broker") >= number
    assert strict.returncode != 0


def test_an_expected_failure_is_not_a_skip(small: Small) -> None:
    body = "import pytest\n@pytest.mark.xfail\ndef test_a(): assert False"
    assert "1 xfailed" in small.run(body, env=REQUIRE_ALL).stdout


def test_a_warning_fails_a_test(small: Small) -> None:
    body = "import warnings\ndef test_a(): warnings.warn('careless')"
    assert "1 failed" in small.run(body).stdout


def test_an_async_test_that_fails_is_red(small: Small) -> None:
    assert "1 failed" in small.run("async def test_a(): assert False").stdout


async def test_an_async_test_runs_in_a_loop(tmp_path: Path) -> None:
    assert asyncio.get_running_loop().is_running()
    assert tmp_path.is_absolute()


def test_nothing_outlives_a_killed_run(small: Small, tmp_path: Path) -> None:
    """kill -9 pytest in the middle of a test: its server and its children end too."""
    note = tmp_path / "pids"
    body = f"""
        import pathlib, time
        def test_a(postgres_server, processes):
            child = processes.python("import time\\ntime.sleep(60)")
            pids = f"{{postgres_server.pid}} {{child.pid}} {{postgres_server.folder}}"
            pathlib.Path({str(note)!r}).write_text(pids)
            time.sleep(60)
    """
    with small.start(body) as run:
        eventually(lambda: note.exists() and note.read_text(), timeout=60)
        run.kill()
    server, child, folder = note.read_text().split()
    eventually(lambda: not alive(int(server)) and not alive(int(child)))
    eventually(lambda: not Path(folder).exists())


ONCE = """
import pathlib
def test_once():
    before = pathlib.Path('before')
    seen = before.exists()
    before.touch()
    assert seen
"""
TIERS = """
import pytest
def test_quick(): ...
@pytest.mark.slow
def test_slow(): ...
@pytest.mark.slow
@pytest.mark.quiet
def test_slow_and_quiet(): ...
@pytest.mark.campaign
@pytest.mark.slow
def test_campaign(): ...
"""


def run_tests(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`make test`, in a project of one file."""
    markers = ["campaign", "slow", "quiet"]
    (folder / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\nmarkers = {markers}\n")
    (folder / "test_small.py").write_text(source)
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "run_tests.py", "-n", "2", *options],
        cwd=folder, env=os.environ | {"PYTEST_ADDOPTS": ""} | alone,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "wanted"), [([], {"quick"}), (["--slow"], {"slow", "slow_and_quiet"})]
)
def test_a_run_is_of_one_tier(tmp_path: Path, options: list[str], wanted: set[str]) -> None:
    """`make test` leaves slow tests out; `make slow` runs them, quiet ones after the others."""
    ran = run_tests(tmp_path, TIERS, "-v", *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert set(re.findall(r"PASSED test_small.py::test_(\w+)", ran.stdout)) == wanted


def test_a_failure_beside_other_tests_decides_and_is_diagnosed_alone(tmp_path: Path) -> None:
    """`make test`: what fails and then passes alone has failed; that it passed is written down."""
    ran = run_tests(tmp_path, ONCE)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout
    for told in (ran.stdout, (tmp_path / "failed-tests.log").read_text()):
        assert "PASSED test_small.py::test_once" in told
        assert "1 passed" in told


def test_files_that_are_named_exist() -> None:
    """Those of `make smoke`, and those that begin early: one that was renamed is noticed here."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    [named] = re.findall(r"^SMOKE \?= (.*)$", makefile, re.MULTILINE)
    conftest = runpy.run_path(str(ROOT / "tests" / "conftest.py"))
    files = [ROOT / path for path in named.split()] + conftest["LONG"]
    assert [file for file in files if not file.exists()] == []
