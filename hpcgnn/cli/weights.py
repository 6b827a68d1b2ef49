"""The command `export`, whose function imports torch late."""

import argparse

from hpcgnn.cli.commands import Commands
from hpcgnn.cli.trained_runs import add_run, config_of_run
from hpcgnn.config import Choices

EXPORT = """\
Write the weights of a run as named tensors of their real shapes. Reads files only; one process, without MPI:

    hpcgnn export runs/first -o model.safetensors              # names and shapes as hpcgnn has them
    hpcgnn export runs/first -o pyg.safetensors --to pyg       # as PyG's layers have them

The file's metadata has the options of the model, facts of the graph, and the origin of the weights."""


def add_export(commands: Commands, choices: Choices) -> None:
    """`hpcgnn export`."""
    from hpcgnn.app.weights import LIBRARIES

    export = commands.add_parser(
        "export", help="the weights of a trained run, for torch and other libraries", description=EXPORT
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


def process_export(arguments: argparse.Namespace, choices: Choices) -> int:
    """Export the weights of a run."""
    from hpcgnn.app.weights import export

    given = argparse.Namespace(run_dir=arguments.run_dir, trust_run=arguments.trust_run)
    if arguments.graph:
        given.graph = arguments.graph
    config = config_of_run(given, choices)
    return export(config, arguments.output, arguments.to, arguments.weights, arguments.force)
