"""What one master can take: records and bytes a second through its mirror, and a thousand workers at once.

    python -m benchmarks.master_ceiling [--chunks 200] [--records 4000] [--workers 1000] [--dir DIR] [--json FILE]

Two measurements, both of the code that a run uses, on one core:

* ceiling: batches of real shards, packed as Locust packs them, are unpacked, checked against their digests, appended
  to the mirror and answered, with and without every record being parsed (a run parses: progress, search);
* crowd: that many simulated workers (each a shard on disk, an outbox, the whole protocol; no process of its own, no
  network) are dealt a level, send it, and end. Once their lines are shipped, once they are kept and the master has
  digests and counts alone. ``master`` is the time within the master's own code, sealing apart.

Times are CPU time of this process, so that a busy machine does not count; writes that wait for a disk are not in them
(take --dir on a memory file system, or the real disk and watch it), nor what a network and a thousand sockets add.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.crowd import Crowd, msgpack
from benchmarks.sample_lines import new_run, plan_of, send
from evidence.layout import MANIFEST
from evidence.lines import canonical
from evidence.mirror import Mirror
from evidence.outbox import Outbox
from evidence.records import Request
from evidence.shard import Shard
from locustfiles._lines_in import LinesIn
from locustfiles._roster import Roster


def ceiling(folder: Path, n_records: int, n_chunks: int, *, parse: bool) -> dict[str, float]:
    """The master's side of one worker's lines, as fast as one core goes."""
    plan = plan_of(folder, n_records, 8)
    run = new_run(folder / "master", plan, 1)
    shard = Shard(folder / "worker", (run.path / MANIFEST).read_bytes(), 0)
    shard.deal(map(canonical, plan.measured))
    for planned in plan.measured:
        send(shard, run.manifest.run_id, planned, n_chunks)
    outbox = Outbox(shard.folder, run.manifest.run_id, 0, window=1 << 30)
    packed: deque[bytes] = deque()
    while (batch := outbox.next(0.0)) is not None:
        packed.append(msgpack.dumps(("evidence", {"kind": "batch", **batch._asdict()}, "host_1")))
    mirror = Mirror(run.path, run.manifest.run_id, run.notice)
    roster = Roster(run, mirror, on_lost=lambda _member: None)
    member = roster.join("host_1", {"host": "host", "pid": 1, "system": None})
    n_seen = 0

    def seen(_record: Request) -> None:
        nonlocal n_seen
        n_seen += 1

    lines_in = LinesIn(run, mirror, roster, on_ended=seen if parse else None)
    n_batches = len(packed)
    began_s = time.process_time()
    while packed:
        _, message, _ = msgpack.loads(packed.popleft(), raw=False, strict_map_key=False)
        answer = lines_in.batch(member, message)
        assert answer is not None
        msgpack.dumps(("evidence", {"kind": "have", **answer._asdict()}, "host_1"))
    took_s = time.process_time() - began_s
    assert mirror.missing(shard.totals(outbox.files())) == ()
    assert n_seen in (0, n_records)
    mirror.close()
    run.close()
    shard.remove()
    return {
        "n_records": n_records,
        "n_batches": n_batches,
        "records_per_cpu_s": n_records / took_s,
        "bytes_per_cpu_s": mirror.n_bytes / took_s,
        "bytes_per_record": mirror.n_bytes / n_records,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=200, help="chunks of an answer")
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--dir", type=Path, default=None, help="where folders are made and removed again")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write the numbers here too")
    options = parser.parse_args()
    found: dict[str, Any] = {"chunks_per_answer": options.chunks}
    for name in ("ceiling", "ceiling_parsed", "crowd_ship", "crowd_keep"):
        folder = Path(tempfile.mkdtemp(dir=options.dir))
        try:
            if name.startswith("ceiling"):
                found[name] = ceiling(folder, options.records, options.chunks, parse=name.endswith("parsed"))
            else:
                shards = name.removeprefix("crowd_")
                found[name] = Crowd(folder, options.workers, options.records, options.chunks, shards=shards).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(name, json.dumps({key: round(value, 4) for key, value in found[name].items()}), file=sys.stderr)
    text = json.dumps(found, indent=1)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
