"""A reading of a server is one of three types, and zero is one of the values of the third.

``Absent``      no such series or field, or the resolved configuration says the feature is off.
``Unmeasured``  it exists, but nothing has been drafted, counted or published yet, or the window is unusable.
``Measured``    a number; ``Measured(0)`` is a measurement.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["absent", "unmeasured", "zero", "value"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmeasured:
    why: str


@dataclass(frozen=True, slots=True)
class Measured:
    value: float


Reading = Absent | Unmeasured | Measured


def state_of(reading: Reading) -> State:
    """The four states printed everywhere: absent, unmeasured, zero, value."""
    if isinstance(reading, Absent):
        return "absent"
    if isinstance(reading, Unmeasured):
        return "unmeasured"
    return "zero" if reading.value == 0 else "value"


def value_or_none(reading: Reading) -> float | None:
    """The number, or None where there is none (never 0 for a missing one)."""
    return reading.value if isinstance(reading, Measured) else None


def why_none(reading: Reading) -> str | None:
    """The reason there is no number, or None where there is one."""
    return None if isinstance(reading, Measured) else reading.why
