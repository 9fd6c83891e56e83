"""``python -m analysis COMMAND``: reads sealed folders, judges them, and says what they can show.

Exit codes: 0 good, 1 the evidence says no, 2 usage or unreadable input, 3 evidence could not be written.
With ``--json`` standard output carries one JSON object and nothing else; messages go to standard error.

Only the command that was asked for is imported: a run ends with a check, and need not wait for what plots.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from analysis.errors import AnalysisError, UsageError
from analysis.loading import without_collector
from evidence.errors import EvidenceError

USAGE = 2
COMMANDS = {  # name: the module with its ``add_arguments`` and ``command``, and what it does
    "check": ("check_command", "the verdict with each reason and remedy; exit code 1 when INVALID"),
    "summary": ("summary_command", "one run in numbers, or several side by side"),
    "outputs": ("outputs_command", "answers judged, of two runs compared, or of a study arm by arm"),
    "compare": ("compare", "a study's arms against its baseline, or runs paired in the order given"),
    "sweep": ("sweep", "throughput, latencies, goodput and capacity by level, and where an arm pays"),
    "list": ("list_command", "what is there, with verdicts"),
    "audit": ("audit", "the case study's saved files: its tables rebuilt, and what they can't show"),
    "export": ("export", "a run or study for other programs, or one verified archive"),
    "unpack": ("unpack_command", "an exported bundle, every hash verified"),
    "trace": ("trace", "where the GPU's time went in profiler windows"),
    "report": ("report", "one self-contained report.html of a run or a study"),
    "recover": ("recover_command", "close the folder of a killed run, launch or study as what it is"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    try:
        with without_collector():
            code, report, lines = options.command(options)
    except UsageError as error:
        return _refused(error, USAGE, options.json)
    except (AnalysisError, EvidenceError) as error:
        return _refused(error, error.exit_code, options.json)
    shown = json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2) if options.json else "\n".join(lines)
    try:
        print(shown, flush=True)
    except BrokenPipeError:  # the reader (head, say) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


def _refused(error: Exception, code: int, as_json: bool) -> int:
    print(f"analysis: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": str(error), "exit_code": code}))
    return code


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was typed; ``command`` is the function to call with it. Exits with 2 on bad usage, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Judge and summarise run folders.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    asked = next((one for one in argv if not one.startswith("-")), None)
    for name, (module, words) in COMMANDS.items():
        added = commands.add_parser(name, help=words, description=words)
        if name == asked:
            found = import_module(f"analysis.{module}")
            added.add_argument("--json", action="store_true", help="print one JSON object")
            found.add_arguments(added)
            added.set_defaults(command=found.command, parser=added)
    options, unknown = parser.parse_known_args(argv)
    if unknown:  # said with the command's own usage, where argparse would show the usage of all
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
