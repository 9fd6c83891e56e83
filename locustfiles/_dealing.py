"""Which worker sends which planned requests of a level, and the messages that carry them."""

from collections.abc import Iterator, Sequence

from evidence.lines import canonical
from locustfiles._crew import Order
from scenarios.plan import Plan, PlannedRequest, dealt_level

DEAL_BYTES = 256 * 1024  # of plan lines in one message

Part = tuple[PlannedRequest, ...]


def parts_of(plan: Plan, order: Order, n_places: int) -> list[Part]:
    """The level's requests, each in one part: by each worker's users, equally in an open loop, warm-up to the first.

    Users go round the workers in turn, as in ``Crew.begin``.
    """
    if order.label is None:  # one user warms up
        return [plan.warmup, *([()] * (n_places - 1))]
    open_loop = order.kind == "arrivals"
    shares = [1 if open_loop else len(range(place, order.users, n_places)) for place in range(n_places)]
    return dealt_level(plan, order.label, shares)


def in_messages(lines: Sequence[PlannedRequest]) -> Iterator[tuple[list[bytes], bool]]:
    """Canonical lines, some for each message, and whether that is the last one; a worker without any gets that too."""
    part: list[bytes] = []
    size = 0
    for line in map(canonical, lines):
        if size + len(line) > DEAL_BYTES and part:
            yield part, False
            part, size = [], 0
        part.append(line)
        size += len(line)
    yield part, True
