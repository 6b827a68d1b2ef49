"""The commands that packages of `hpcgnn.extras` and the user's file add to `hpcgnn`."""

from collections.abc import Callable
from typing import Any

from hpcgnn.config import Choices
from hpcgnn.registry import Registry

#: argparse's sub-parsers of `hpcgnn`, a class that is generic in stubs alone.
Commands = Any
#: add(commands, choices) adds a parser to them.
COMMANDS: Registry[Callable[[Commands, Choices], None]] = Registry("command")
