"""One small interface to what an engine's series and answers mean, and the choice of the module that knows.

Every adapter is pure and keyed on engine and version. ``meaning`` is its dictionary as data; the rest is what differs
in kind from engine to engine: how a process is told from another, how acceptance follows from the counts, and what a
single answer proves.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from infra.engines.acceptance import Acceptance
from infra.engines.fields import ColdProof
from infra.engines.histogram import Latency
from infra.engines.labels import LabelRule
from infra.engines.llamacpp import LlamaCpp
from infra.engines.meaning import Meaning
from infra.engines.readings import Reading
from infra.engines.sglang import SGLang
from infra.engines.tensorrtllm import TensorRTLLM
from infra.engines.vllm import VLLM
from infra.engines.window import Delta, Snapshot, Window
from infra.wire.exposition import Exposition, parse


class Adapter(Protocol):
    """What an engine's module offers. Windows come one a server; several share the load and are added."""

    @property
    def engine(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    @property
    def prefix(self) -> str:
        """How the names of its series begin."""

    @property
    def rule(self) -> LabelRule:
        """What its labels mean for adding up."""

    @property
    def meaning(self) -> Meaning: ...
    @property
    def counters(self) -> tuple[str, ...]:
        """Sample names that only grow while a process lives (a sum of times may fall with its clock)."""

    def identity(self, exposition: Exposition, headers: Mapping[str, str]) -> str | None:
        """What tells this server process from another; header names are lower case. None: nothing does."""

    def window(self, before: Snapshot, after: Snapshot, during: Sequence[Snapshot] = ()) -> Window:
        """What one server did between two scrapes at rest; ``during`` in the order taken."""

    def draft_limit(self, windows: Sequence[Window]) -> Reading:
        """Drafts at most a verify step."""

    def finished(self, windows: Sequence[Window]) -> Delta:
        """Requests that ended well in the windows, as near as the engine tells them apart."""

    def inter_token(self, windows: Sequence[Window]) -> Latency:
        """The inter-token histogram, whatever it observes: ``observes`` says what."""

    def tpot(self, windows: Sequence[Window]) -> Latency:
        """Time per output token, never a step time."""

    def acceptance(
        self, windows: Sequence[Window], *, speculative: bool | None, n_requests: int | None = None
    ) -> Acceptance:
        """Of everything in the windows. ``n_requests`` is the client's count, used where the engine has none."""

    def request_extras(self, *, cold_per_request: bool) -> dict[str, Any]:
        """Body fields that make the server send evidence."""

    def request_acceptance(self, fields: Mapping[str, Any], usage: Any, *, speculative: bool | None) -> Acceptance:
        """Of one ended request, from what its answer carried beside the text."""

    def pooled_acceptance(
        self, answers: Sequence[tuple[Mapping[str, Any], Any]], *, speculative: bool | None
    ) -> Acceptance:
        """Of a group of ended requests, each (server fields, usage): counts are summed."""

    def cold_proof(self, fields: Mapping[str, Any], usage: Any) -> ColdProof:
        """Cached prompt tokens of one ended request: a reading, and whether it proves a cold start."""


def adapter_for(engine: str | None, version: str | None = None) -> Adapter | None:
    """The reader of an engine's series and answers, or None for an engine that is not known here."""
    match engine:
        case "llama.cpp":
            return LlamaCpp(version=version)
        case "sglang":
            return SGLang(version=version)
        case "vllm":
            return VLLM(version=version)
        case "tensorrt-llm":
            return TensorRTLLM(version=version)
        case _:
            return None


def read_snapshot(adapter: Adapter, body: str | bytes, headers: Mapping[str, str]) -> Snapshot:
    """A scrape as read. Raises ExpositionError. Header names may come in any case."""
    folded = {name.lower(): value for name, value in headers.items()}
    exposition = parse(body, folded.get("content-type"))
    return Snapshot(exposition=exposition, identity=adapter.identity(exposition, folded))


def idle_key(adapter: Adapter, snapshot: Snapshot) -> tuple[Any, ...]:
    """What must not change between scrapes of a server at rest: its process and its counters.

    Gauges are not asked: they hold old values (SGLang), or stand still above zero after an abort (vLLM).
    """
    counted = sorted((s.key, s.value) for name in adapter.counters for s in snapshot.exposition.find(name))
    return (snapshot.identity, tuple(counted))


def speaks(adapter: Adapter, exposition: Exposition) -> bool:
    """Whether any series here is one of this engine's."""
    return any(name.startswith(adapter.prefix) for name in exposition.names())
