"""What is shipped beside the code fits it: alert rules, a dashboard, a page of the docs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from outlast.metrics.catalogue import CATALOGUE
from tests.docs.metrics_page import PAGE, rendered
from tests.support.processes import ROOT
from tests.support.requirements import require_program

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "outlast.json"
MONITOR = ROOT / "docs" / "how-to" / "monitor.md"
SUFFIXES = ("_bucket", "_sum", "_count")


def exported() -> set[str]:
    """Every name that a scrape can have."""
    names = set(CATALOGUE)
    for metric in CATALOGUE.values():
        if metric.kind == "histogram":
            names |= {metric.name + suffix for suffix in SUFFIXES}
    return names


def named(text: str) -> set[str]:
    return set(re.findall(r"\boutlast_[a-z_]+\b", text))


def promtool(*args: object) -> str:
    command = [require_program("promtool"), *map(str, args)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def test_each_alert_fires_when_it_should() -> None:
    """R195, R201: that of tables which nobody measures among them."""
    promtool("check", "rules", RULES)
    promtool("test", "rules", Path(__file__).with_name("alerts_test.yml"))


def test_every_alert_is_tested_and_explained() -> None:
    """R201"""
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tests = Path(__file__).with_name("alerts_test.yml").read_text()
    assert len(alerts) >= 12
    assert [alert for alert in alerts if alert not in tests] == []
    assert [alert for alert in alerts if f"`{alert}`" not in MONITOR.read_text()] == []


def test_alerts_name_what_is_exported() -> None:
    assert named(RULES.read_text()) <= exported()


def panels() -> list[dict[str, Any]]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    listed: list[dict[str, Any]] = dashboard["panels"]
    return listed


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_the_dashboard_names_what_is_exported() -> None:
    assert named("\n".join(expressions())) <= exported()
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert all(panel["description"] for panel in panels())


def test_the_dashboard_asks_what_prometheus_understands(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{n}", "expr": expression.replace("$__rate_interval", "5m")}
        for n, expression in enumerate(expressions())
    ]
    file = tmp_path / "panels.json"  # which is YAML, too
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells


def test_the_page_is_what_the_catalogue_says() -> None:
    """R202"""
    text = PAGE.read_text("utf-8")
    assert rendered(text) == text, "write it anew: python -m tests.docs.metrics_page"
