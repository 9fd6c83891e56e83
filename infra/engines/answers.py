"""What a server's endpoints said, for judging: bodies and headers, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.wire.faults import NotJson, read_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one endpoint said. ``status`` is None when nothing answered, and ``error`` then says why."""

    status: int | None
    headers: Mapping[str, str]
    body: bytes | None
    error: str | None = None

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers.items() if key.lower() == name), None)

    def json(self) -> Any:
        """The body when the status is 200 and it is JSON, without NaN and without end of nesting; else None."""
        if self.status != 200 or self.body is None:
            return None
        try:
            return read_json(self.body.removeprefix(b"\xef\xbb\xbf"))
        except NotJson:
            return None

    @property
    def seen(self) -> str:
        """For a sentence: what came in place of the answer looked for."""
        return self.error or (f"HTTP {self.status}" if self.status != 200 else "an answer that cannot be read")


def resolved_info(answers: Mapping[str, Answer]) -> Mapping[str, Any]:
    """SGLang's resolved configuration, from the address it had or has."""
    for name in ("server_info", "server_info_old"):
        answer = answers.get(name)
        said = answer.json() if answer else None
        if isinstance(said, Mapping):
            return said
    return {}
