"""Dashboards, panels and queries as types, and the JSON Grafana provisions from them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

DATASOURCE_UID = "load-test-prometheus"  # as in infra/grafana/provisioning/datasources/prometheus.yml
SCHEMA_VERSION = 39  # Grafana 10.2 and later read it and bring it up to their own
COLUMNS = 24

Kind = Literal["timeseries", "bargauge", "table", "stat"]
Draw = Literal["line", "points"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """One PromQL query. ``instant``: asked once, at the end of the range shown."""

    expr: str
    legend: str
    instant: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """``unit`` is Grafana's id of the unit; ``description`` says what is seen and what it does not show."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    kind: Kind = "timeseries"
    draw: Draw = "line"
    width: int = 12
    height: int = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A choice at the head of a dashboard, filled by a query of label values."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dashboard:
    """``uid`` is its address in Grafana and the name of its file."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]


def as_text(dashboard: Dashboard, links: Sequence[Dashboard]) -> str:
    """The file as it stands on disk."""
    return json.dumps(as_json(dashboard, links), indent=2, ensure_ascii=False) + "\n"


def as_json(dashboard: Dashboard, links: Sequence[Dashboard]) -> dict[str, Any]:
    """What Grafana provisions; ``links`` are the dashboards to go to from here."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["llm-load-test"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,  # one crosshair over all panels: they share a time axis
        "time": {"from": "now-15m", "to": "now"},
        "refresh": "5s",
        "timezone": "utc",
        "links": [_link(other) for other in links if other.uid != dashboard.uid],
        "annotations": {"list": []},
        "templating": {"list": [_variable(one) for one in dashboard.variables]},
        "panels": _panels(dashboard.panels),
    }


def _datasource() -> dict[str, str]:
    return {"type": "prometheus", "uid": DATASOURCE_UID}


def _link(other: Dashboard) -> dict[str, Any]:
    return {
        "title": other.title,
        "type": "link",
        "url": f"/d/{other.uid}",
        "keepTime": True,
        "includeVars": True,
        "icon": "dashboard",
    }


def _variable(one: Variable) -> dict[str, Any]:
    return {
        "name": one.name,
        "label": one.label,
        "type": "query",
        "datasource": _datasource(),
        "definition": one.query,
        "query": {"query": one.query, "refId": one.name},
        "refresh": 2,  # when the time range changes
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 2,  # newest run id last
    }


def _panels(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """From left to right, a new line where one is full."""
    placed, x, y, line_height = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        placed.append(_panel(number, panel, x, y))
        x, line_height = x + panel.width, max(line_height, panel.height)
    return placed


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "type": panel.kind,
        "datasource": _datasource(),
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [_target(place, query) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": _custom(panel)}, "overrides": []},
        "options": _options(panel.kind),
    }


def _target(place: int, query: Query) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + place),
        "datasource": _datasource(),
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": query.instant,
        "range": not query.instant,
        "format": "time_series",
    }


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {}
    points = panel.draw == "points"
    return {
        "drawStyle": panel.draw,
        "lineWidth": 1,
        "pointSize": 6 if points else 3,
        "showPoints": "always" if points else "auto",
        "spanNulls": False,  # a gap is a gap
    }


def _options(kind: Kind) -> dict[str, Any]:
    if kind == "timeseries":
        return {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max", "lastNotNull"]},
            "tooltip": {"mode": "multi"},
        }
    reduced = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}}
    if kind == "bargauge":
        return {**reduced, "orientation": "horizontal", "displayMode": "basic", "showUnfilled": True}
    return reduced if kind == "stat" else {}
