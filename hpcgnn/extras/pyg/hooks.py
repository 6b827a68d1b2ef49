"""Registers the libraries whose layers have equals here, and the command that reads their weights."""

from hpcgnn.app import weights
from hpcgnn.cli.commands import COMMANDS
from hpcgnn.extras.pyg.importing import add_import_weights
from hpcgnn.extras.pyg.weights import LIBRARIES

for name, library in LIBRARIES.items():
    weights.LIBRARIES.register(name, library)
COMMANDS.register("import-weights", add_import_weights)
