"""The command `estimate`."""

import argparse
from typing import Any

from hpcgnn.cli.arguments import add_sections, rank_counts, read_options, whole
from hpcgnn.cli.trained_runs import config_of_run
from hpcgnn.config import Choices, make_config
from hpcgnn.errors import ConfigError

DESCRIPTION = """\
Predict a job on any number of ranks, before it is queued. The table has the memory of the largest rank by part, and
the bytes and messages of an epoch. It takes one process, and no MPI.

    hpcgnn estimate --graph graph.h5 --ranks 1,2,4,8,16 --model sage --layers 3 --hidden 256
    hpcgnn estimate --graph graph.h5 --ranks 32,64,128 --ranks-per-node 2 --memory 240G --model gat --json out.json
    hpcgnn estimate --graph graph.h5 --ranks 64,256 --model sage --layers 3 --hidden 256 --like runs/two-nodes

Bytes and messages are counted from the graph file and are exact. Memory comes from the real program on two small
copies of a rank. Option --like adds the least and the most seconds, scaled by these counts from a run."""


def add_estimates(commands: Any, choices: Choices) -> None:
    """Add `hpcgnn estimate`."""
    estimate = commands.add_parser(
        "estimate", help="memory, messages and time of a job on any number of ranks", description=DESCRIPTION
    )
    own = estimate.add_argument_group("estimate")
    own.add_argument(
        "--ranks", type=rank_counts, required=True, metavar="P[,P]", help="numbers of ranks, such as 1,2,4,8"
    )
    own.add_argument("--ranks-per-node", type=whole, metavar="N", help="ranks on a node (default: not known)")
    own.add_argument(
        "--like",
        metavar="RUN",
        help="add the seconds of an epoch, scaled by these counts from a run of some epochs on the same machine",
    )
    own.add_argument("--json", metavar="FILE", help="write the estimate: a list with an object per number of ranks")
    own.add_argument("--force", action="store_true", help="overwrite an existing file of --json")
    add_sections(estimate, choices)
    estimate.set_defaults(process=process_estimate)


def process_estimate(arguments: argparse.Namespace, choices: Choices) -> int:
    """Estimate a job."""
    from hpcgnn.extras.estimate.estimate_command import estimate

    if arguments.ranks_per_node is not None and arguments.ranks_per_node < 1:
        raise ConfigError(f"--ranks-per-node {arguments.ranks_per_node}: expected at least 1")
    config, like = make_config(read_options(arguments)[0], choices, arguments.config or "the command line"), None
    if arguments.like:
        like = config_of_run(argparse.Namespace(run_dir=arguments.like, trust_run=arguments.trust_run), choices)
    return estimate(config, arguments, like)
