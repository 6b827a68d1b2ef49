"""How fast are the layers gatv2 and transformer by kernels, against the general rule and the same layers of PyG?

Forward and backward of one layer on a graph file, on one rank. The table gives milliseconds as min / median / max, and
the ratio of each median to that of the kernels. Repetitions alternate between the contestants. PyG's layers get the
same edges; without torch_geometric they are left out.
"""

import argparse
import sys
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
from contest import measure, parser_of, spread

import hpcgnn
from hpcgnn import kernels
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.gatv2 import GATv2Conv
from hpcgnn.nn.transformer import TransformerConv

LAYERS = {"gatv2": GATv2Conv, "transformer": TransformerConv}


def arguments() -> argparse.Namespace:
    example = "  python jobs/bench/kernels/scores.py --graph r.h5 --threads 2 --clock cpu"
    parser = parser_of(__doc__, example, nodes=0, repetitions=3)
    parser.add_argument("--graph", required=True, help="graph file; its features are the layers' input")
    parser.add_argument("--shapes", nargs="+", default=["2x32"], metavar="HxD")
    return parser.parse_args()


def peer(model: str, heads: int, width: int, columns: int) -> torch.nn.Module | None:
    """PyG's layer."""
    try:
        from torch_geometric import nn
    except ImportError:
        return None
    if model == "gatv2":
        return nn.GATv2Conv(columns, width, heads, add_self_loops=False)
    return nn.TransformerConv(columns, width, heads)


def edges_of(path: str) -> torch.Tensor:
    """int64 (2, E)."""
    with GraphFile(path) as file:
        indptr, indices = (torch.from_numpy(file.read(f"topology/{name}")).long() for name in ("indptr", "indices"))
    return torch.stack([indices, torch.repeat_interleave(indptr.diff())])


def step(function, x: torch.Tensor):
    """Forward and backward of `function`, whose gradients are thrown away."""

    def run() -> None:
        y = function(x)
        y.backward(torch.ones_like(y))
        x.grad = None

    return run


def main() -> None:
    options = arguments()
    if not kernels.scores_rows():
        raise SystemExit("scores.py measures the compiled kernels, which are not in use")
    graph = hpcgnn.load(options.graph, self_loops="keep", edges=False)
    torch.set_num_threads(options.threads)
    x, edges = graph.features.clone().requires_grad_(), edges_of(options.graph)
    print(f"{len(x)} nodes, {edges.shape[1]} edges, {x.shape[1]} features; {options.threads} threads, {options.clock}")
    for model, kind in LAYERS.items():
        for shape in options.shapes:
            heads, width = map(int, shape.split("x"))
            ours = graph.initialise(kind(x.shape[1], width, heads))
            theirs = peer(model, heads, width, x.shape[1])

            def general(x: torch.Tensor, ours: torch.nn.Module = ours) -> torch.Tensor:
                with patch.object(kernels, "scores_rows", return_value=False):
                    return ours(graph, x)

            contestants = {"kernels": step(lambda x, ours=ours: ours(graph, x), x), "general rule": step(general, x)}
            if theirs is not None:
                contestants["PyG"] = step(lambda x, theirs=theirs: theirs(x, edges), x)
            times = measure(contestants, options)
            first = sorted(times["kernels"])[options.repetitions // 2]
            for name, found in times.items():
                ratio = sorted(found)[options.repetitions // 2] / first
                print(f"{model:12} {shape:>6} {name:13} {spread([1000 * t for t in found], 0):>22} ms  {ratio:5.2f}")


if __name__ == "__main__":
    main()
