"""The command `label-propagation`: its parser, and the call of its function.

The function imports torch, so that `--help` stays fast.
"""

import argparse

from hpcgnn.app.correction import part, steps
from hpcgnn.cli.arguments import RANK_OPTIONS, add_declared, given_options
from hpcgnn.cli.commands import Commands
from hpcgnn.config import Choices, make_config

_OPTIONS = ("graph", "partition", "auto_partition", "self_loops", "halo_buffer", "threads", "precision", "watchdog")
LABEL_PROPAGATION = """\
Predict each node's class from the labels of the training nodes alone, a baseline for any graph without features or a
model. Labels spread along the edges: each of N steps is y <- A S y + (1 - A) y_0 in [0, 1] (Zhou et al., 2004). S is
the adjacency with symmetric normalisation, y_0 the training nodes' labels. The edges are the file's, unless
--self-loops add is given. Exact, on any number of ranks:

    mpiexec -n 4 hpcgnn label-propagation --graph graph.h5
    mpiexec -n 4 hpcgnn label-propagation --graph graph.h5 --alpha 0.7 --steps 20 -o classes.csv"""


def add_label_propagation(commands: Commands, choices: Choices | None) -> None:
    """`hpcgnn label-propagation`."""
    command = commands.add_parser(
        "label-propagation",
        allow_abbrev=False,
        help="classes from the labels of training nodes alone: a baseline without a model",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=LABEL_PROPAGATION,
    )
    command.add_argument(
        "--alpha", type=part, metavar="A", default=0.9, help="part that comes from the neighbours (default: 0.9)"
    )
    # `steps` is a key of the configuration.
    command.add_argument(
        "--steps", dest="propagations", type=steps, metavar="N", default=50, help="number of steps (default: 50)"
    )
    command.add_argument(
        "-o", "--output", metavar="FILE", default="", help="also write the classes: .h5, .csv, .parquet or .npy"
    )
    command.add_argument("--probabilities", action="store_true", help="also the share of each class, with --output")
    command.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_declared(command, (*_OPTIONS, *RANK_OPTIONS), choices)
    command.set_defaults(process=process_label_propagation)


def process_label_propagation(arguments: argparse.Namespace, choices: Choices) -> int:
    """Propagate labels."""
    from hpcgnn.app.label_propagation import Request, propagate_labels
    from hpcgnn.comm.launch.run import run
    from hpcgnn.outputs.files import check_name

    request = Request(
        arguments.alpha, arguments.propagations, arguments.output, arguments.probabilities, arguments.force
    )
    request.check()
    if request.output:
        check_name("--output", request.output, int(request.probabilities))
    config = make_config(given_options(arguments), choices)
    return run(
        lambda session: propagate_labels(config, session, request),
        config.run.threads or None,
        watchdog=config.run.watchdog,
        transport=config.run.comm,
    )
