"""What the recorder itself noticed: on file at once, so that a kill loses none of it."""

import time
from pathlib import Path

from evidence.durable import AppendFile
from evidence.errors import EvidenceError
from evidence.lines import encode
from evidence.records import Notice
from evidence.redact import KnownSecrets, redact_text


class NoticeBook:
    """Appends to a ``noticed.jsonl``, which is made with its first line."""

    def __init__(self, path: Path, secrets: KnownSecrets) -> None:
        self.texts: list[str] = []  # everything noticed, also what a full disk kept from the file
        self._path = path
        self._secrets = secrets
        self._file: AppendFile | None = None

    def add(self, text: str) -> None:
        """Note one thing; what was noted before in the same words is noted once.

        Never raises: what cannot be written stands in ``texts``, and the write that failed first has stopped the run
        already.
        """
        text = self._secrets.clean(redact_text(text))
        if text in self.texts:
            return
        self.texts.append(text)
        try:
            if self._file is None:
                self._file = AppendFile(self._path)
            self._file.append(encode(Notice(at_unix_s=time.time(), text=text), self._path).line)
        except EvidenceError:
            pass  # kept in memory for the seal

    def close(self) -> None:
        """Bring the file to the disk and close it."""
        if self._file is not None:
            self._file.close()
