"""What workers may say to their master, by kind: whatever else comes over the network is refused before it is acted on.

A worker of another version, or something that is no worker at all, can send anything. A message that is none must not
end the run, so it is held against this table first.
"""

from pydantic import ValidationError

from evidence.lines import first_fault
from evidence.worker_records import Totals
from locustfiles._crew import Tally
from locustfiles._post import Message

_MAY_BE_UNKNOWN = (type(None),)
FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "hello": {"host": (str, *_MAY_BE_UNKNOWN), "pid": (int, *_MAY_BE_UNKNOWN), "system": (str, *_MAY_BE_UNKNOWN)},
    "batch": {},  # evidence.replication.Batch looks at its own
    "tally": {"number": (int,), "tally": (str,)},
    "pong": {"sent_ns": (int,), "read_ns": (int,), "answered_ns": (int,), "wall_ns": (int,)},
    "ready": {"shard": (str,)},
    "dealt": {"number": (int,), "n_lines": (int,)},
    "totals": {"totals": (str,), "where": (str,), "is_whole": (bool,)},
    "failed": {"error": (str,), "exit_code": (int,)},
}


def fault_of(message: Message) -> str | None:
    """Why a message is none that a worker may send, in words with the value seen; None where nothing is wrong.

    ``hello`` may leave out what the worker does not know of its place; every other field must be there.
    """
    kind = message.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        return f"kind {str(kind)[:40]!r} is none that workers say"
    for name, types in FIELDS[kind].items():
        if name not in message and type(None) not in types:
            return f"{kind}: {name} is not there"
        if type(message.get(name)) not in types:
            return f"{kind}: {name} is {repr(message.get(name))[:40]}, which is no {types[0].__name__}"
    if kind == "hello" and message.get("pid") is not None and message["pid"] < 1:
        return f"hello: pid is {message['pid']}, which no process has"
    try:
        if kind == "tally":
            Tally.model_validate_json(message["tally"])
        elif kind == "totals":
            Totals.model_validate_json(message["totals"])
    except ValidationError as error:
        return f"{kind}: {first_fault(error)}"
    return None
