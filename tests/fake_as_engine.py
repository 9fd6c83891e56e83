"""The fake engine under the command line of a real one: flags that it does not know are left out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from infra.fake_engine import main

THEIRS = {
    "--n-gpu-layers",
    "--ctx-size",
    "--parallel",
    "--spec-type",
    "--max-running-requests",
    "--mem-fraction-static",
}


def own(words: list[str]) -> list[str]:
    """Without the real engine's flags and their values."""
    kept: list[str] = []
    flags = iter(words)
    for word in flags:
        if word in THEIRS:
            next(flags)
        else:
            kept.append(word)
    return kept


if __name__ == "__main__":
    sys.exit(main(own(sys.argv[1:])))
