"""Registers the command `estimate`."""

from hpcgnn.cli.commands import COMMANDS
from hpcgnn.extras.estimate.command import add_estimates

COMMANDS.register("estimate", add_estimates)
