"""What the wire leaves behind: segments with two stamps, and how the stamps become offsets from t0.

The kernel stamp is CLOCK_REALTIME at the instant the network stack took the packet in; the user stamp is
CLOCK_MONOTONIC at the instant we came to read it. t0 is on the monotonic clock, so kernel stamps are carried over
by the difference of the two clocks, read once beside t0. Both clocks are slewed alike; only a step of the wall clock
between t0 and the end can falsify the offsets, which is why callers read the difference again and record the change.

Where one read returned several packets, the kernel gives the stamp of the last of them: such a segment says when its
last byte came, and no more.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

StampSource = Literal["kernel", "user"]

# How the reading of a response ended. "complete": the response is whole, or broken so that nothing more can be read.
Ended = Literal["complete", "eof", "timeout_headers", "timeout_stalled", "cancelled", "reset"]


class Segment(NamedTuple):
    """Bytes of one read. ``kernel_unix_ns`` is None where the kernel gave no stamp."""

    kernel_unix_ns: int | None
    user_monotonic_ns: int
    data: bytes


def stamp_source(segments: Sequence[tuple[int | None, int, bytes]]) -> StampSource | None:
    """Kernel when every segment has a kernel stamp, else user: the two are never mixed. None without segments."""
    if not segments:
        return None
    return "user" if None in [kernel for kernel, _, _ in segments] else "kernel"


def offsets_s(
    segments: Sequence[tuple[int | None, int, bytes]], *, t0_monotonic_ns: int, wall_minus_monotonic_ns: int
) -> tuple[float, ...]:
    """Seconds from t0 to each segment, by the stamps that ``stamp_source`` names."""
    if stamp_source(segments) == "kernel":
        t0_unix_ns = t0_monotonic_ns + wall_minus_monotonic_ns
        return tuple([(kernel - t0_unix_ns) / 1e9 for kernel, _, _ in segments if kernel is not None])
    return tuple([(user - t0_monotonic_ns) / 1e9 for _, user, _ in segments])


def kernel_to_user_s(
    segments: Sequence[tuple[int | None, int, bytes]], *, wall_minus_monotonic_ns: int
) -> tuple[float, ...] | None:
    """How long each segment lay in the kernel before it was read, in seconds; None without kernel stamps.

    The client's own diagnosis: it needs no knowledge of the server.
    """
    if stamp_source(segments) != "kernel":
        return None
    delays_ns = [user + wall_minus_monotonic_ns - kernel for kernel, user, _ in segments if kernel is not None]
    return tuple([delay_ns / 1e9 for delay_ns in delays_ns])
