"""The options of `hpcgnn estimate`, and how their words are read. Imports no torch."""

import argparse
from typing import NamedTuple

DESCRIPTION = """\
Predict a job on any number of ranks, before it is queued. The table has the memory of the largest rank by part, and
the bytes and messages of an epoch. It takes one process, and no MPI.

    hpcgnn estimate --graph graph.h5 --ranks 1,2,4,8,16 --model sage --layers 3 --hidden 256
    hpcgnn estimate --graph graph.h5 --ranks 32,64,128 --ranks-per-node 2 --memory 240G --model gat --json out.json
    hpcgnn estimate --graph graph.h5 --ranks 64,256 --model sage --layers 3 --hidden 256 --like runs/two-nodes
    hpcgnn estimate --stats 111e6,3.2e9,128,172,2.3 --ranks 32,64,128 --model sage --norm batch

From a graph file the halo rows of the map of training are counted: bytes and messages are exact. From --stats they
follow from the cut edges and the degrees. Memory comes from the real program. It runs an epoch on two small copies of
a rank, and memory grows in a straight line with their size. So every model, schedule and option has its estimate.

--like RUN adds seconds. The work of an epoch of RUN is scaled by edges, rows and weights of the busiest rank. Its waits
are scaled by the bytes sent, its reduction by the bytes of parameters. The least and the most are shown, for a run does
not show hidden messages."""


CUT_SHARE, TRAIN_SHARE = 0.3, 0.1


class Stats(NamedTuple):
    """A graph by numbers. edges: directed ones; exponent: of the degrees' power law, 0 for equal degrees."""

    nodes: int
    edges: int
    features: int
    classes: int
    exponent: float = 0.0

    def induced(self, share: float) -> "Stats":
        """Return the numbers of the subgraph induced by a random `share` of the nodes."""
        nodes, edges = max(1, round(self.nodes * share)), max(1, round(self.edges * share**2))
        return self._replace(nodes=nodes, edges=edges)


def read_stats(text: str) -> Stats:
    """`nodes,edges,features,classes[,exponent]`."""
    try:
        values = [float(word) for word in text.split(",")]
        if len(values) not in (4, 5) or not all(1 <= value < 2**63 for value in values[:4]):
            raise ValueError
        stats = Stats(*(int(value) for value in values[:4]), *values[4:])
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected nodes,edges,features,classes[,exponent], such as 111e6,3.2e9,128,172,2.3, got {text!r}"
        ) from None
    if len(values) == 5 and not 1 < stats.exponent < 10:
        raise argparse.ArgumentTypeError(f"expected an exponent between 1 and 10, such as 2.3, got {values[4]:g}")
    return stats


def count(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return value


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text!r}")
    return value


def add_estimate(parser: argparse.ArgumentParser, ranks: object) -> None:
    """Declare `hpcgnn estimate`, in addition to the options of training. ranks: parses a list of numbers of ranks."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    own = parser.add_argument_group("estimate")
    own.add_argument(
        "--stats",
        type=read_stats,
        metavar="N,E,F,C[,A]",
        help="instead of --graph: nodes, directed edges, features, classes, and the exponent of the degrees' power law "
        "(left out: all nodes have the same degree)",
    )
    own.add_argument(
        "--cut-share",
        type=share,
        metavar="X",
        help="with --stats: share of the edges between ranks on very many ranks; on P ranks it is X (1 - 1/P) "
        f"(default: {CUT_SHARE})",
    )
    own.add_argument(
        "--train-share",
        type=share,
        metavar="X",
        help=f"with --stats: share of the training nodes (default: {TRAIN_SHARE})",
    )
    own.add_argument("--ranks", type=ranks, required=True, metavar="P[,P]", help="numbers of ranks, such as 1,2,4,8")  # type: ignore[arg-type]
    own.add_argument("--ranks-per-node", type=count, metavar="N", help="ranks on a node (default: not known)")
    own.add_argument(
        "--like",
        metavar="RUN",
        help="add the seconds of an epoch, scaled by these counts from a run of some epochs on the same machine",
    )
    own.add_argument("--json", metavar="FILE", help="write the estimate: a list with an object per number of ranks")
    own.add_argument("--plot", metavar="FILE.png", help="draw the memory of a rank over the number of ranks")
    own.add_argument("--force", action="store_true", help="overwrite existing files of --json and --plot")
