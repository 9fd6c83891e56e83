"""HTML that is safe by its type: a plain str is escaped wherever it is put, and only ``Markup`` is taken as HTML.

What a model or a server said goes into a page through here alone. Beside the characters that mean something to HTML,
the ones that steer a reader's eye are taken out of action: control, bidirectional and invisible characters are shown
by their code points, so that an answer cannot reorder or hide the text around it.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

# C0 but tab and newline, DEL, C1, Arabic letter mark, zero-width space, bidi marks, embeddings, overrides, isolates,
# line and paragraph separators, invisible operators, byte order mark. Joiners stay: scripts and emoji need them.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_JSON_RISKS = re.compile("[<>&\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_VOID = frozenset({"meta", "input", "br", "hr"})


class Markup(str):
    """HTML already; never made from anything that was read."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. Of attribute names a final underscore is lost, others turn into hyphens; None and False leave out."""
    said = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """The children one after another, plain text escaped."""
    return Markup("".join(_child(child) for child in children))


def text(said: str) -> Markup:
    """Plain text as HTML, its steering characters shown by their code points."""
    shown, last = [], 0
    for found in STEERING.finditer(said):
        shown.append(_escaped(said[last : found.start()]))
        shown.append(f'<span class="ctl">U+{ord(found.group()):04X}</span>')
        last = found.end()
    return Markup("".join([*shown, _escaped(said[last:])]))


def prose(said: str) -> Markup:
    """A sentence of this project as HTML: what stands between two backticks is shown as code, not the backticks."""
    parts = _CODE.split(said)  # every second part is what stood between them
    return join([tag("code", part) if place % 2 else part for place, part in enumerate(parts)])


def json_block(value: Any) -> Markup:
    """A value as JSON for a ``<script type="application/json">``: nothing in it can end the element or steer a reader.

    Raises ValueError on NaN and infinities.
    """
    dumped = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(_JSON_RISKS.sub(lambda found: f"\\u{ord(found.group()):04x}", dumped))


def json_size(said: str) -> int:
    """Bytes that a text takes in a JSON block."""
    return len(json_block(said).encode())


def number(value: float | int | None, shown: str, path: str | None = None) -> Markup:
    """A number as printed that carries its exact value, and where in the command's JSON it stands."""
    if value is None:
        return text(shown)
    return tag("data", shown, value=repr(value), data_path=path)


def table(
    titles: Iterable[Child], rows: Iterable[Iterable[Child]], *, left: Iterable[int] = (0,), caption: str | None = None
) -> Markup:
    """A table in a box of its own that scrolls sideways where it is too wide; columns in ``left`` are left-aligned."""
    at_left = set(left)
    head = [
        tag("th", title, scope="col", class_="l" if place in at_left else None) for place, title in enumerate(titles)
    ]
    body = [
        tag(
            "tr",
            [
                cell
                if isinstance(cell, Markup) and cell.startswith(("<td", "<th"))
                else tag("td", cell, class_="l" if place in at_left else None)
                for place, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    whole = tag(
        "table", None if caption is None else tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", body)
    )
    return scroller(whole, caption or "table")


def scroller(inside: Markup, label: str) -> Markup:
    """A box that scrolls sideways by keyboard too."""
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=label)


def details(summary: Child, *inside: Child, open_: bool = False, id_: str | None = None) -> Markup:
    """Something folded away under a line that opens it."""
    return tag("details", tag("summary", summary), *inside, open=open_ or None, id=id_)


def facts(pairs: Mapping[str, Child] | Iterable[tuple[str, Child]]) -> Markup:
    """Names with their values, one a line."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return tag("dl", [join([tag("dt", name), tag("dd", value)]) for name, value in items], class_="facts")


def slug(*parts: object) -> str:
    """An id for an anchor from names that were read: what is no letter, digit, hyphen or underscore, by its code."""
    return "-".join(re.sub(r"[^A-Za-z0-9_-]", lambda found: f"~{ord(found.group()):x}", str(part)) for part in parts)


class Whys:
    """The reasons behind the dashes of one section, numbered; they stand under its tables."""

    def __init__(self, section: str) -> None:
        self._section = section
        self._numbers: dict[str, int] = {}

    def dash(self, why: str | None) -> Markup:
        return self._reference("-", why or "no reason on record")

    def mark(self, words: str) -> Markup:
        """A number in brackets that refers to a remark in the same list."""
        return self._reference("", words)

    def _reference(self, lead: str, words: str) -> Markup:
        place = self._numbers.setdefault(words, len(self._numbers) + 1)
        plain = words.replace("`", "")  # a title can't show code
        return tag("a", f"{lead}[{place}]", href=f"#{self._section}-why{place}", title=plain, class_="why")

    def list(self) -> Markup:
        if not self._numbers:
            return Markup("")
        numbered = self._numbers.items()
        items = [tag("li", prose(why), id=f"{self._section}-why{place}", value=place) for why, place in numbered]
        return join([tag("p", "Why there is a dash", class_="note"), tag("ol", items, class_="whys")])


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return text(child)
    if isinstance(child, int):
        return str(child)
    return join(child)


def _attribute(key: str, value: str | int | float | bool) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if value is False:
        return ""
    if value is True:
        return f" {name}"
    plain = STEERING.sub(lambda found: f"\u27e8U+{ord(found.group()):04X}\u27e9", str(value))
    return f' {name}="{html.escape(plain.encode("utf-8", "replace").decode())}"'


def _escaped(said: str) -> str:
    return html.escape(said.encode("utf-8", "replace").decode(), quote=False)
