"""The shipped deployment files: schemas, as far as they can be checked, and every command line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from outlast.cli import outlast
from tests.support.processes import ROOT
from tests.support.requirements import require_program

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def documents(file: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(file.read_text()) if found]


def containers(file: Path) -> Iterator[dict[str, Any]]:
    for document in documents(file):
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        yield from pod.get("containers", [])


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Where each command stands, and its words after `outlast`."""
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        if "command" in service:
            yield f"compose: {name}", service["command"]
    for file in MANIFESTS:
        for container in containers(file):
            yield file.name, container["args"]
    for file in UNITS:
        (line,) = re.findall(r"^ExecStart=\S+/outlast (.*)$", file.read_text(), re.MULTILINE)
        yield file.name, shlex.split(line)


def parse(words: list[str]) -> click.Context:
    """Parse a command line as `outlast` does, without running it."""
    with click.Context(outlast, info_name="outlast") as group:
        name, command, rest = outlast.resolve_command(group, list(words))
        assert command is not None
        return command.make_context(name, rest, parent=group)


@pytest.mark.parametrize(("where", "words"), list(command_lines()))
def test_every_command_of_a_deployment_is_one_that_outlast_takes(
    where: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", "postgresql://outlast@db/outlast")
    assert parse([str(word) for word in words]).info_name == words[0]


def test_a_command_with_an_unknown_option_is_found() -> None:
    """The test above can fail."""
    with pytest.raises(click.NoSuchOption):
        parse(["worker", "shop:ol", "--grase=25"])


@pytest.mark.parametrize("file", [f for f in MANIFESTS if f.name != "kustomization.yaml"])
def test_manifests_fit_the_schemas_of_kubernetes(file: Path) -> None:
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_kustomizations_name_files_that_exist() -> None:
    for file in (DEPLOY / "kubernetes").rglob("kustomization.yaml"):
        resources = documents(file)[0]["resources"]
        assert [r for r in resources if not (file.parent / r).exists()] == []


@pytest.mark.parametrize("file", MANIFESTS)
def test_a_pod_has_longer_to_end_than_its_worker(file: Path) -> None:
    for document in documents(file):
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", []):
            grace = [w for w in container["args"] if w.startswith("--grace=")]
            for word in grace:
                assert pod["terminationGracePeriodSeconds"] >= float(word[8:]) + 5


@pytest.mark.parametrize("file", UNITS)
def test_units_pass_the_check_of_systemd(file: Path, tmp_path: Path) -> None:
    """With paths and a user that this machine has: `verify` looks for them."""
    text = file.read_text().replace("/srv/shop/.venv/bin/outlast", sys.executable)
    text = text.replace("User=shop", "User=root").replace("/srv/shop", "/")
    unit = tmp_path / file.name
    unit.write_text(text)
    command = [require_program("systemd-analyze"), "verify", "--man=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stderr.strip()) == (0, "")


def test_the_compose_file_mounts_files_that_exist() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert {"db", "migrate", "worker", "serve", "prometheus", "grafana"} <= set(services)
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (COMPOSE.parent / source).exists(), volume
        # Published on this machine alone.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_configuration_of_prometheus_is_valid(tmp_path: Path) -> None:
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(rules)
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text((DEPLOY / "docker" / "prometheus.yml").read_text())
    command = [require_program("promtool"), "check", "config", str(configuration)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_dashboards_and_data_sources_can_be_read() -> None:
    for file in (DEPLOY / "docker" / "grafana").glob("*.yml"):
        assert documents(file)[0]["apiVersion"] == 1
    assert json.loads((DEPLOY / "grafana" / "outlast.json").read_text())["panels"]


def test_the_image_runs_as_nobody_in_particular_behind_an_init() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert 'ENTRYPOINT ["tini", "--", "outlast"]' in text
    copied = [w for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
              for w in line.split()[:-1]]  # fmt: skip
    assert [name for name in copied if not (ROOT / name).exists()] == []
    kept = {f"!{name.removeprefix('./')}" for name in copied}
    assert kept <= set((ROOT / ".dockerignore").read_text().split())
