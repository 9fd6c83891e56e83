"""The openai client's two ways to receive a stream, for the comparison with ours; the library takes a second to import.

What a way takes and gives back is that of ``stream_transports``.
"""

import json
import threading
import time
from collections.abc import Callable

import openai

from benchmarks.stream_transports import TIME_LIMIT_S, Load, Seen, seen
from infra.openai_client import OpenAIClient, OpenAITransportError
from infra.wire.stamps import Segment
from infra.wire.stream import events


class OpenAiTransports:
    """The openai client, shared by all users, without retries: its chunk objects, or its bytes as they come.

    The chunk objects are those of our own ``--transport openai``; the bytes are the least that the library costs.
    """

    def __init__(self, base_url: str) -> None:
        self.version = openai.__version__
        self._ours = OpenAIClient(base_url, api_key=None, timeout_s=TIME_LIMIT_S)
        self._client = openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=TIME_LIMIT_S)

    def chunks(self, load: Load) -> Callable[[], list[Seen]]:
        def receive(segments: list[Segment]) -> None:
            with self._ours.stream(load.fields | {"stream": True, "fake": load.fake}) as opened:
                opened.receive(segments)

        return self._bodies(load, receive)

    def iter_bytes(self, load: Load) -> Callable[[], list[Seen]]:
        arguments = load.fields | {"stream": True, "extra_body": {"fake": load.fake}}

        def receive(segments: list[Segment]) -> None:
            with self._client.chat.completions.with_streaming_response.create(**arguments) as response:
                for data in response.iter_bytes():
                    segments.append(Segment(None, time.monotonic_ns(), data))  # noqa: PERF401 - stamped one by one

        return self._bodies(load, receive)

    def _bodies(self, load: Load, receive: Callable[[list[Segment]], None]) -> Callable[[], list[Seen]]:
        rows: list[tuple[int, list[Segment]]] = []

        def one() -> None:
            segments: list[Segment] = []
            t0_ns = time.monotonic_ns()
            receive(segments)
            rows.append((t0_ns, segments))

        def read() -> list[Seen]:
            return [
                seen(t0, ((segs[i].user_monotonic_ns, json.loads(data), i) for i, data in events(segs, framing="body")))
                for t0, segs in rows
            ]

        self._all(load, one)
        return read

    def _all(self, load: Load, one: Callable[[], None]) -> None:
        """A thread a user; under gevent's patching these are greenlets."""
        errors: list[Exception] = []

        def user(k: int) -> None:
            time.sleep(load.start_after_s(k))
            try:
                for _ in range(load.n_requests):
                    one()
            except (OSError, openai.OpenAIError, OpenAITransportError) as error:
                errors.append(error)

        threads = [threading.Thread(target=user, args=(k,)) for k in range(load.n_streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
