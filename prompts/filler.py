"""Text of our own to lengthen prompts with: prose, Python and JSON lines, put together from a seed, as long as wanted.

The material is in ``prompts/material/``: sentences, functions and records with slots, and the words for the slots. What
comes out is read by a language model as ordinary text of its domain. Every piece carries a serial number or numbers of
its own, and none repeats within a text of any length that is used. Draws are from SHA-256 of the seed and a counter,
so the same seed gives the same text on any machine.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from string import Template

FOLDER = Path(__file__).resolve().parent / "material"
FILES = ("sentences.txt", "functions.txt", "records.txt", "slots.json")
_SENTENCES_A_PARAGRAPH = (3, 4, 5)
_CODE = "%%\n"


class _Drawn(Mapping[str, str]):
    """Slot values, drawn as they are asked for: two slots of one name in a template get two values."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count, self.serial = seed, 0, 0

    def below(self, n: int) -> int:
        """A number in [0, n)."""
        digest = hashlib.sha256(f"{self._seed}:{self._count}".encode()).digest()
        self._count += 1
        return int.from_bytes(digest[:8], "big") % n

    def one_of(self, choices: Sequence[str]) -> str:
        return choices[self.below(len(choices))]

    def __getitem__(self, slot: str) -> str:
        made = {
            "serial": lambda: f"{self.serial:05d}",
            "number": lambda: str(2 + self.below(398)),
            "digit": lambda: str(1 + self.below(9)),
            "day": lambda: str(10 + self.below(18)),
            "year": lambda: str(10 + self.below(80)),
            "monthnumber": lambda: f"{1 + self.below(12):02d}",
            "hour": lambda: f"{1 + self.below(23)}:{10 + self.below(50)}",
            "Noun": lambda: self["noun"].capitalize(),
            "NOUN": lambda: self["noun"].upper(),
        }
        return made[slot]() if slot in made else self.one_of(_slots()[slot])

    def __iter__(self) -> Iterator[str]:
        return iter(_slots())

    def __len__(self) -> int:
        return len(_slots())


class _Kept(_Drawn):
    """As above, but a name of a thing (noun, field, unit) stays the same within one piece, so that it makes sense."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._kept: dict[str, str] = {}

    def renew(self) -> None:
        self._kept, self.serial = {}, self.serial + 1

    def __getitem__(self, slot: str) -> str:
        if slot not in ("noun", "field", "unit"):
            return super().__getitem__(slot)
        return self._kept.setdefault(slot, super().__getitem__(slot))


def pieces(domain: str, seed: str) -> Iterator[str]:
    """Pieces of text without end, each with the white space that follows it.

    "code" gives Python definitions, "json" records of one line, every other domain paragraphs of prose.
    """
    if domain == "code":
        return _filled(_templates("functions.txt", _CODE), seed, "\n\n\n")
    if domain == "json":
        return _filled(_templates("records.txt", "\n"), seed, "\n")
    return _paragraphs(seed)


def sentences(seed: str) -> Iterator[str]:
    """Sentences of prose without end."""
    drawn, frames = _Drawn(seed), _templates("sentences.txt", "\n")
    while True:
        text = frames[drawn.below(len(frames))].substitute(drawn)
        yield text[0].upper() + text[1:]


def _paragraphs(seed: str) -> Iterator[str]:
    lengths, prose = _Drawn(f"{seed}:lengths"), sentences(seed)
    while True:
        n = _SENTENCES_A_PARAGRAPH[lengths.below(len(_SENTENCES_A_PARAGRAPH))]
        yield " ".join(next(prose) for _ in range(n)) + "\n\n"


def _filled(templates: Sequence[Template], seed: str, after: str) -> Iterator[str]:
    drawn = _Kept(seed)
    while True:
        drawn.renew()
        yield templates[drawn.below(len(templates))].substitute(drawn).rstrip("\n") + after


@lru_cache
def _templates(name: str, between: str) -> tuple[Template, ...]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return tuple(Template(piece) for piece in text.split(between) if piece.strip())


@lru_cache
def _slots() -> dict[str, list[str]]:
    slots: dict[str, list[str]] = json.loads((FOLDER / "slots.json").read_text(encoding="utf-8"))
    return slots
