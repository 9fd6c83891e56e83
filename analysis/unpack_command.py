"""``analysis unpack BUNDLE``."""

from analysis.bundle import add_unpack_arguments as add_arguments
from analysis.bundle import unpack_command as command

__all__ = ["add_arguments", "command"]
