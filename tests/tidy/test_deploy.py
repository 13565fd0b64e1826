"""What operators import from deploy/ and read in docs/metrics.md: only metrics that exist, with labels they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simpleworkflow.worker.metrics import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "simpleworkflow.json"
GUIDE = ROOT / "docs" / "metrics.md"
METRIC = re.compile(r"\b(workflow_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([\w, ]+)\)")
OTHERS = {"workflow_type"}
"""Words that look like metrics and are labels."""
FROM_PROMETHEUS = {"instance", "job", "le"}


def exported() -> dict[str, set[str]]:
    """Every series name with its labels."""
    found: dict[str, set[str]] = {}
    for name, family in FAMILIES.items():
        if family.kind == "histogram":
            found |= {f"{name}_{part}": set(family.labels) for part in ("bucket", "sum", "count")}
            found[f"{name}_bucket"] |= {"le"}
        else:
            found[name] = set(family.labels)
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for number, line in enumerate(GUIDE.read_text().split("```promql")[1].split("```")[0].splitlines()):
        if line and not line.startswith("#"):
            yield f"docs/metrics.md, line {number} of the queries", line


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_expressions_use_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    known = exported()
    used = [(name, chosen) for name, chosen in METRIC.findall(expression) if name not in OTHERS]
    assert used or 'up{job="simpleworkflow"}' in expression, f"{where}: {expression}"
    for name, chosen in used:
        assert name in known, f"{where} uses {name}"
        assert set(re.findall(r"(\w+)=", chosen)) <= known[name] | FROM_PROMETHEUS, where
    labels = set().union(*(known[name] for name, _ in used)) if used else set()
    for grouped in GROUPED.findall(expression):
        assert set(grouped.split(", ")) <= labels | FROM_PROMETHEUS, where
    assert expression.count("(") == expression.count(")")


def test_gauges_of_the_queue_are_never_summed_over_workers() -> None:
    """Every worker tells the same number; the sum would be as many times too large."""
    shared = {name for name, family in FAMILIES.items() if family.kind == "gauge" and "worker_id" not in family.labels}
    for where, expression in expressions():
        for name in shared:
            assert not re.search(rf"\bsum(?: by \([\w, ]+\))? ?\({name}\b", expression), where


def test_alerts_say_what_to_do_and_use_labels_that_their_expression_keeps() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 8
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        text = json.dumps(rule["annotations"])
        assert rule["annotations"]["summary"]
        kept = set().union(*(grouped.split(", ") for grouped in GROUPED.findall(rule["expr"])))
        for label in re.findall(r"\$labels\.(\w+)", text):
            assert label in (kept or {"worker_id", "instance", "workflow_type"}), rule["alert"]


def test_the_dashboard_can_be_imported_and_shows_every_metric() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert board["uid"]
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "type", "worker"]
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}
    assert len(places) == len(ids), "no panel lies on another"
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels())
    shown = DASHBOARD.read_text()
    assert [name for name in FAMILIES if not re.search(rf"\b{name}(_bucket|_sum|_count)?\b", shown)] == []


def test_the_guide_lists_every_metric_with_its_kind_and_labels() -> None:
    rows = re.findall(r"^\| `(workflow_\w+)` \| (\w+) \|(.*?)\|", GUIDE.read_text(), flags=re.MULTILINE)
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert told == {name: (family.kind, family.labels) for name, family in FAMILIES.items()}


def test_the_example_configuration_loads_the_rules_beside_it() -> None:
    configuration = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())
    assert configuration["rule_files"] == [ALERTS.name]
    assert configuration["scrape_configs"][0]["job_name"] == "simpleworkflow"
