"""Workers' lines as they come in: into the mirror, and each ended request's record to whoever looks on."""

from collections.abc import Callable

from pydantic import ValidationError

from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from evidence.layout import REQUESTS
from evidence.lines import first_fault
from evidence.mirror import Mirror
from evidence.records import Request
from evidence.replication import Batch, Have
from evidence.worker_records import Kept
from locustfiles._post import Message
from locustfiles._roster import Member, Roster


class LinesIn:
    """``on_ended`` is told of every record once it is in the folder; without it no record is parsed."""

    def __init__(
        self, writer: RunWriter, mirror: Mirror, roster: Roster, *, on_ended: Callable[[Request], None] | None
    ) -> None:
        self._writer = writer
        self._mirror = mirror
        self._roster = roster
        self._on_ended = on_ended
        self._tails: dict[int, bytes] = {}  # half a line of a worker's requests

    def batch(self, member: Member, message: Message) -> Have | None:
        """Take one batch; what to answer. Raises EvidenceError where the folder cannot be written."""
        batch = Batch.of({name: value for name, value in message.items() if name != "kind"})
        if batch is None or batch.worker != member.number:
            of = "is none" if batch is None else f"calls itself worker {batch.worker}'s"
            fields = ", ".join(f"{name} {str(message.get(name))[:40]!r}" for name in ("number", "file", "offset"))
            self._roster.malformed(member.client, f"a batch of worker {member.number} {of} ({fields})")
            return None
        before = self._mirror.of(member.number).number
        answer = self._mirror.apply(batch)
        if answer is not None and answer.number > before and batch.file == REQUESTS and self._on_ended is not None:
            *lines, self._tails[batch.worker] = (self._tails.get(batch.worker, b"") + batch.data).split(b"\n")
            for line in lines:
                self._on_ended(self._record(batch.worker, line))
        return answer

    def prove(self, member: Member, shards: str) -> bool:
        """Hold a worker's totals against what is here; True where all its lines are elsewhere, and its shard may go."""
        totals = member.totals
        assert totals is not None
        if shards != "ship":
            kept = Kept(
                run_id=totals.run_id,
                worker=member.number,
                where=member.where or str(member.shard),
                host=member.place.get("host"),
                why=f"--shards {shards}",
                totals=totals,
            )
            self._writer.kept(kept)
            self._roster.record("kept", member, detail=kept.where)
            return member.copied
        missing = self._mirror.missing(totals)
        if missing:
            lie = f"they lie in {member.shard} on {member.place.get('host')}"
            self._writer.notice(f"worker {member.number}: not all of its lines are here ({'; '.join(missing)}); {lie}")
            self._roster.record("incomplete", member, detail="; ".join(missing))
            return False
        self._mirror.sync(member.number)
        self._roster.record("finished", member)
        return True

    def _record(self, worker: int, line: bytes) -> Request:
        try:
            return Request.model_validate_json(line)
        except ValidationError as error:
            what = f"worker {worker} sent a record that is none: {first_fault(error)}"
            remedy = "run the same version of this program on the master and on every worker"
            raise EvidenceError(self._writer.path, what, remedy, writing=True) from error
