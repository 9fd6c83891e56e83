"""``python -m infra.offline``: the same verbs where nothing but Python is installed yet."""

import argparse
import sys

from infra.offline import command

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m infra.offline", description=command.__doc__.split("\n")[0])
    command.add_arguments(parser)
    sys.exit(command.command(parser.parse_args()))
