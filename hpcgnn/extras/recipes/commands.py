"""The commands `propagate` and `label-propagation`: their parsers, and the calls of their functions."""

import argparse
from collections.abc import Callable

from hpcgnn.cli.arguments import RANK_OPTIONS, add_declared, given_options
from hpcgnn.cli.commands import Commands, on_ranks
from hpcgnn.config import Choices, make_config
from hpcgnn.errors import ConfigError
from hpcgnn.extras.recipes.correct_and_smooth import part, steps
from hpcgnn.extras.recipes.hops import OPERATORS, HopRequest

_OPTIONS = ("graph", "partition", "self_loops", "halo_buffer", "threads", "precision", "watchdog")
PROPAGATE = """\
Write a copy of a graph file whose features are hops of propagation side by side: X, A X, A A X … for each operator
(SIGN: Frasca et al., 2020). `train --model sign` then learns of each node by itself, and sends nothing but gradients of
parameters. A is, by --operators:

    sym   D_in^-1/2 A D_out^-1/2, as gcn and sgc have it
    mean  the mean of the in-neighbours
    ppr   personalised PageRank: each hop is (1 - T) sym Z + T X, as appnp has it

--label-hops appends hops of the training nodes' labels, for `--model sign`.

Self loops are added unless --self-loops keep is given. Exact, on any number of ranks, which hold rows of their own
nodes alone:

    mpiexec -n 4 hpcgnn propagate --graph graph.h5 --operators sym,ppr --hops 3 -o hops.h5
    mpiexec -n 4 hpcgnn train --graph hops.h5 --model sign --layers 2"""


def _add_common(command: argparse.ArgumentParser, choices: Choices, process: Callable[..., int]) -> None:
    """The options of both commands, and the call of one."""
    command.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_declared(command, (*_OPTIONS, *RANK_OPTIONS), choices)
    command.set_defaults(process=process)


def _operators(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if len(set(names)) < len(names) or set(names) - set(OPERATORS):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(OPERATORS)}, joined by commas, got {text!r}")
    return names


def add_propagate(commands: Commands, choices: Choices) -> None:
    """`hpcgnn propagate`."""
    said = "features that have come along the edges once, for models that see each node by itself"
    command = commands.add_parser("propagate", help=said, description=PROPAGATE)
    command.add_argument(
        "--operators", type=_operators, metavar="NAMES", default=("sym",), help="some of sym,mean,ppr (default: sym)"
    )
    command.add_argument("--hops", type=steps, metavar="K", default=2, help="hops of each operator (default: 2)")
    command.add_argument(
        "--teleport",
        type=part,
        metavar="T",
        default=0.1,
        help="part of the features that each hop of ppr takes back (default: 0.1)",
    )
    command.add_argument(
        "--label-hops",
        type=steps,
        metavar="K",
        default=0,
        help="hops of the training nodes' labels, with a column for each class (default: none)",
    )
    command.add_argument("-o", "--output", metavar="FILE", required=True, help="the graph file to write")
    _add_common(command, choices, process_propagate)


def request_of(arguments: argparse.Namespace) -> HopRequest:
    """The HopRequest of parsed arguments: words of this command alone, for an option of `train` has one of these
    names.
    """
    taken = (arguments.output, arguments.operators, arguments.hops, arguments.teleport, arguments.force)
    return HopRequest(*taken, arguments.label_hops)


def process_propagate(arguments: argparse.Namespace, choices: Choices) -> int:
    """Propagate features."""
    from hpcgnn.extras.recipes.propagate import propagate_features

    given = {name: value for name, value in given_options(arguments).items() if name not in ("hops", "teleport")}
    config = make_config(given, choices)
    return on_ranks(lambda session: propagate_features(config, session, request_of(arguments)), config)


LABEL_PROPAGATION = """\
Predict each node's class from the labels of the training nodes alone, a baseline for any graph without features or a
model. Labels spread along the edges: each of N steps is y <- A S y + (1 - A) y_0 in [0, 1] (Zhou et al., 2004). S is
the adjacency with symmetric normalisation, y_0 the training nodes' labels. The edges are the file's, unless
--self-loops add is given. Exact, on any number of ranks:

    mpiexec -n 4 hpcgnn label-propagation --graph graph.h5
    mpiexec -n 4 hpcgnn label-propagation --graph graph.h5 --alpha 0.7 --steps 20 -o classes.csv"""


def add_label_propagation(commands: Commands, choices: Choices) -> None:
    """`hpcgnn label-propagation`."""
    said = "classes from the labels of training nodes alone: a baseline without a model"
    command = commands.add_parser("label-propagation", help=said, description=LABEL_PROPAGATION)
    command.add_argument(
        "--alpha", type=part, metavar="A", default=0.9, help="part that comes from the neighbours (default: 0.9)"
    )
    # `steps` is a key of the configuration.
    command.add_argument(
        "--steps", dest="propagations", type=steps, metavar="N", default=50, help="number of steps (default: 50)"
    )
    command.add_argument("-o", "--output", metavar="FILE", default="", help="also write the classes: .h5 or .csv")
    command.add_argument("--probabilities", action="store_true", help="also the share of each class, with --output")
    _add_common(command, choices, process_label_propagation)


def process_label_propagation(arguments: argparse.Namespace, choices: Choices) -> int:
    """Propagate labels."""
    from hpcgnn.extras.recipes.label_propagation import LabelRequest, propagate_labels
    from hpcgnn.outputs.files import check_name

    alpha, steps = arguments.alpha, arguments.propagations
    request = LabelRequest(alpha, steps, arguments.output, arguments.probabilities, arguments.force)
    if request.probabilities and not request.output:
        raise ConfigError("--probabilities needs --output with the file to write them to, got none")
    if request.output:
        check_name("--output", request.output)
    config = make_config(given_options(arguments), choices)
    return on_ranks(lambda session: propagate_labels(config, session, request), config)
