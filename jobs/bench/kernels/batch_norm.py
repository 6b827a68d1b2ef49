#!/usr/bin/env python3
"""Batch normalisation, forward and backward, beside torch's: seconds of the same rows by turns."""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path[1:1] = [str(Path(__file__).resolve().parents[3])]  # this checkout
import torch
from contest import measure, parser_of, spread

from hpcgnn.memory.arena import Arena
from hpcgnn.nn.norm import BatchNorm


def main():
    """Print seconds and their ratio."""
    parser = parser_of(__doc__, "  python jobs/bench/kernels/batch_norm.py --threads 1 --clock cpu", 100_000, 10)
    parser.add_argument("--width", type=int, default=256, help="columns (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    x, gy = torch.randn(2, options.nodes, options.width, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    graph = SimpleNamespace(num_nodes=options.nodes, arena=Arena(), total=torch.clone)
    ours, peer = BatchNorm(options.width), torch.nn.BatchNorm1d(options.width)

    def ours_step():
        x.grad = None
        ours(graph, x).backward(gy)

    def torch_step():
        x.grad = None
        peer(x).backward(gy)

    times = measure({"hpcgnn": ours_step, "torch": torch_step}, options)
    ratios = [theirs / own for own, theirs in zip(times["hpcgnn"], times["torch"])]
    for name, values in times.items():
        print(f"{name:7} ms {spread([1e3 * value for value in values], 1)}")
    print(f"torch / hpcgnn {spread(ratios, 2)}   (min / median / max)")


if __name__ == "__main__":
    main()
