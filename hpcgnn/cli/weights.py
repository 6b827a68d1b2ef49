"""The commands `export` and `import-weights`, which carry weights between programs: their parsers and calls.

The called functions import torch, so that `--help` stays fast.
"""

import argparse

from hpcgnn.cli.arguments import add_sections, add_trust, given_options
from hpcgnn.cli.commands import Commands
from hpcgnn.cli.trained_runs import add_run, config_of_run
from hpcgnn.config import Choices, make_config, read_toml

EXPORT = """\
Write the weights of a run as named tensors of their real shapes. Reads files only; one process, without MPI:

    hpcgnn export runs/first -o model.safetensors              # names and shapes as hpcgnn has them
    hpcgnn export runs/first -o pyg.safetensors --to pyg       # as PyG's layers have them

The file's metadata has the options of the model, facts of the graph, and the origin of the weights."""
IMPORT = """\
Make a run directory of weights that were trained elsewhere, such as with sampled neighbours in PyG. All commands then
take the run: exact evaluation and predictions on the whole graph, or more training:

    hpcgnn import-weights pyg.pt --graph graph.h5 --model sage --layers 2 --hidden 64 --run-dir runs/from-pyg
    mpiexec -n 4 hpcgnn evaluate runs/from-pyg
    mpiexec -n 4 hpcgnn predict runs/from-pyg -o predictions.csv
    mpiexec -n 4 hpcgnn train --resume --run-dir runs/from-pyg

FILE is a state dict: safetensors, or a .pt file of tensors alone, with hpcgnn's or PyG's names. The options of the
model must be the same as in its training; a file of `hpcgnn export` has them. One process, without MPI."""


def add_export(commands: Commands, choices: Choices) -> None:
    """`hpcgnn export`."""
    from hpcgnn.app.weights import LIBRARIES

    export = commands.add_parser(
        "export",
        allow_abbrev=False,
        help="the weights of a trained run, for torch and other libraries",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=EXPORT,
    )
    add_run(export)
    export.add_argument("-o", "--output", metavar="FILE.safetensors", required=True, help="the file to write")
    export.add_argument(
        "--to",
        choices=("torch", *LIBRARIES),
        default="torch",
        help="names and shapes of hpcgnn (torch), or of equal layers of another library (default: torch)",
    )
    export.add_argument("--graph", metavar="FILE", default="", help="the run's graph file, if it has been moved")
    export.add_argument("--force", action="store_true", help="replace the file if it exists")
    export.set_defaults(process=process_export)


def add_import_weights(commands: Commands, choices: Choices) -> None:
    """`hpcgnn import-weights`."""
    command = commands.add_parser(
        "import-weights",
        allow_abbrev=False,
        help="a run directory of weights that were trained elsewhere",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=IMPORT,
    )
    command.add_argument("file", metavar="FILE", help="the weights: .safetensors, or .pt with a state dict")
    command.add_argument("--config", metavar="FILE.toml", help="read options from this file, as for `hpcgnn train`")
    add_trust(command)
    add_sections(command, choices)
    command.set_defaults(process=process_import_weights)


def process_export(arguments: argparse.Namespace, choices: Choices) -> int:
    """Export the weights of a run."""
    from hpcgnn.app.weights import export

    given = argparse.Namespace(run_dir=arguments.run_dir, trust_run=arguments.trust_run)
    if arguments.graph:
        given.graph = arguments.graph
    config = config_of_run(given, choices)
    return export(config, arguments.output, arguments.to, arguments.weights, arguments.force)


def process_import_weights(arguments: argparse.Namespace, choices: Choices) -> int:
    """Make a run directory of weights that were trained elsewhere."""
    from hpcgnn.app.weights import import_weights, options_of_file

    known = {} if arguments.config else options_of_file(arguments.file)
    filed = read_toml(arguments.config) if arguments.config else known
    given = given_options(arguments)
    config = make_config({**filed, **given}, choices, arguments.config or "the command line")
    return import_weights(arguments.file, config)
