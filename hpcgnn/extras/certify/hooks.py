"""Registers the command `certify`."""

from hpcgnn.cli.commands import COMMANDS
from hpcgnn.extras.certify.command import add_certify

COMMANDS.register("certify", add_certify)
