"""Reading a file that a user named: a regular file of a bounded size, or an error that says what it is instead.

A device, a pipe or a socket by that name is not waited for, and what has no end is not read.
"""

import os
import stat
from pathlib import Path


class NotRegularError(Exception):
    """The file cannot be read as asked. ``what`` is wrong with it, ``remedy`` says what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what}; {remedy}")


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The whole file. Raises NotRegularError for what is missing, unreadable, no regular file or beyond the size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a null byte in the name
        raise NotRegularError("is no path that can be opened", "name a file") from error
    except OSError as error:
        raise _unreadable(error) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise NotRegularError("cannot be read (it is a folder)", "check the path and name a file")
        if not stat.S_ISREG(mode):
            raise NotRegularError("is a device, a pipe or a socket", "name a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise _unreadable(error) from error
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise NotRegularError(f"is larger than {most_bytes >> 20} MiB", "name another file, or make this one smaller")
    return data


def _unreadable(error: OSError) -> NotRegularError:
    reason = error.strerror or type(error).__name__
    return NotRegularError(f"cannot be read ({reason})", "check the path and its permissions")
