"""One self-contained page: style, script and data inside, no network, and a policy that lets nothing else run.

The policy (Content-Security-Policy) names the one script and the one style by their SHA-256, so that text which slipped
into the page as markup could neither run nor load anything. The page holds no instant of its making: the same evidence
gives the same bytes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.report_html import Markup, join, json_block, prose, tag

ASSETS = Path(__file__).parent / "report_assets"
GENERATOR = "locust-llm-evidence report"
NO_SCRIPT = "Charts need JavaScript (it is in this page, nothing is loaded). Every table stands without it."


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of the page under an anchor; ``nav`` is its name in the navigation."""

    id: str
    nav: str
    title: str
    body: Markup


def page(title: str, subtitle: str, sections: Sequence[Section], data: Any) -> str:
    """The whole document."""
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    script = script_text()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content=GENERATOR),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    nav = tag("nav", [tag("a", one.nav, href=f"#{one.id}") for one in sections], aria_label="sections")
    theme = tag("button", "Light / dark", type="button", id="theme", class_="js")
    body = tag(
        "body",
        tag("a", "To the verdict", href=f"#{sections[0].id}", class_="skip"),
        tag("header", tag("div", tag("h1", title), theme, class_="top"), tag("p", subtitle, class_="note"), nav),
        tag("main", tag("noscript", tag("p", NO_SCRIPT, class_="warn")), [_section(one) for one in sections]),
        tag("aside", id="detail", tabindex=-1, aria_label="one request", hidden=True),
        tag("div", id="tip", aria_hidden="true", hidden=True),
        tag("div", id="said", role="status", aria_live="polite", class_="unseen"),
        tag("script", json_block(data), type="application/json", id="data"),
        tag("script", Markup(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def script_text() -> str:
    """The page's script: the files in order of their names, in one scope of their own."""
    files = sorted(ASSETS.glob("*.js"))
    return "(() => {\n'use strict';\n" + "\n".join(file.read_text(encoding="utf-8") for file in files) + "})();\n"


def figure(kind: str, caption: str, **attributes: str | int) -> Markup:
    """A place that the script draws a chart into."""
    plot = tag("div", class_="plot", tabindex=0, role="group", aria_label=caption)
    return tag("figure", plot, tag("figcaption", caption), data_chart=kind, class_="chart", **attributes)


def limits(said: Sequence[str]) -> Markup:
    return tag("ul", [tag("li", prose(one)) for one in said], class_="limits")


def _section(one: Section) -> Markup:
    return tag("section", tag("h2", one.title), one.body, id=one.id, aria_label=one.title)


def _hash(said: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(said.encode()).digest()).decode()


def sections(found: Sequence[Section | None]) -> list[Section]:
    """Those that have something to show."""
    return [one for one in found if one is not None]


def section(id_: str, nav: str, title: str, *body: Markup | None) -> Section | None:
    """A section, or None where nothing is in it."""
    inside = join([part for part in body if part is not None])
    return Section(id=id_, nav=nav, title=title, body=inside) if inside else None
