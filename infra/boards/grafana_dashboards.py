"""Grafana's dashboards as files.

    python -m infra.boards.grafana_dashboards --write    make infra/grafana/dashboards anew
    python -m infra.boards.grafana_dashboards --check    say where a file is not what the code makes; exit code 1

The JSON is provisioned as it lies there; it is checked equal, so that an edit in the file alone does not last.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.boards.grafana_client_boards import ARMS, CLIENT_HEALTH, HOST
from infra.boards.grafana_model import as_text
from infra.boards.grafana_server_boards import ACCEPTANCE, KV_AND_QUEUE, SERVER_AND_CLIENT

DASHBOARDS = (SERVER_AND_CLIENT, ARMS, ACCEPTANCE, KV_AND_QUEUE, CLIENT_HEALTH, HOST)
FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"


def files() -> dict[str, str]:
    """Name of each file and what must stand in it."""
    return {f"{one.uid}.json": as_text(one, DASHBOARDS) for one in DASHBOARDS}


def differences(folder: Path) -> list[str]:
    """What is not as the code makes it, in words; [] when all is."""
    wanted = files()
    there = {path.name for path in folder.glob("*.json")}
    found = [f"{name} is missing" for name in sorted(wanted.keys() - there)]
    found += [f"{name} is not made by this code" for name in sorted(there - wanted.keys())]
    for name in sorted(wanted.keys() & there):
        if (folder / name).read_text(encoding="utf-8") != wanted[name]:
            found.append(f"{name} differs from what this code makes")
    return found


def write(folder: Path) -> list[Path]:
    """Write every file, and remove JSON files that this code does not make."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for path in folder.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    written = []
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


def main(argv: Sequence[str]) -> int:
    """Exit code 0 good, 1 the files differ."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.boards.grafana_dashboards", description="Grafana's dashboards."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="make the files anew")
    what.add_argument("--check", action="store_true", help="are the files what this code makes")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="(%(default)s)")
    options = parser.parse_args(argv)
    if options.write:
        sys.stdout.write("".join(f"{path}\n" for path in write(options.folder)))
        return 0
    found = differences(options.folder)
    for one in found:
        sys.stderr.write(f"{options.folder}: {one}: run python -m infra.boards.grafana_dashboards --write\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
