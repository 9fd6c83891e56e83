"""When the requests of an open loop are due, precomputed: the same seed gives the same instants on any machine.

No random generator of a language is used. The uniform number of the i-th gap (from 0) is the first 53 bits of
``sha256("{seed}:arrivals:{label}:{i}")`` divided by 2**53; a Poisson gap is ``-ln(1 - u) / rate``, the logarithm taken
in decimal arithmetic of 30 digits, which is rounded the same everywhere (a C library's need not be). Instants lie on a
grid of nanoseconds and are summed as whole numbers, so that no order of summing can change them.
"""

import hashlib
from decimal import Context, Decimal

_DIGITS = Context(prec=30)
_NANOSECONDS = 1_000_000_000
_BITS = 53


def constant(n: int, rate_per_s: float) -> tuple[float, ...]:
    """``n`` instants in seconds from the level's begin: the first at 0, the others 1 / rate apart."""
    rate = Decimal(rate_per_s)
    return tuple(_grid(_DIGITS.divide(Decimal(place * _NANOSECONDS), rate)) / _NANOSECONDS for place in range(n))


def poisson(n: int, rate_per_s: float, seed: int, label: str) -> tuple[float, ...]:
    """``n`` instants in seconds from the level's begin, of a Poisson process: the first after a first gap."""
    at, instants, rate = 0, [], Decimal(rate_per_s)
    for place in range(n):
        gap = _DIGITS.divide(-_DIGITS.ln(1 - Decimal(uniform(seed, label, place))), rate)
        at += _grid(gap * _NANOSECONDS)
        instants.append(at / _NANOSECONDS)
    return tuple(instants)


def uniform(seed: int, label: str, place: int) -> float:
    """A number in [0, 1) with 53 bits, the ``place``-th of the stream of a seed and a level's label."""
    digest = hashlib.sha256(f"{seed}:arrivals:{label}:{place}".encode()).digest()
    return float((int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / 2**_BITS)


def _grid(value: Decimal) -> int:
    return int(value.to_integral_value(context=_DIGITS))
