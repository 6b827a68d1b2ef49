"""How fast is `gather`, against what the memory allows and against torch's CSR product?

Aggregation reads one row of x per edge, in an order that the graph dictates; everything else is small. The bound is
therefore a *probe* that reads the same rows in the same order and sums them into registers, with neither row
structure nor results to store. The table gives, for each width and element type, GB/s of rows read (edges x width x
bytes per element / time) by gather, probe and torch.sparse.mm, and gather's speed as a fraction of the probe's and as
a multiple of torch's. Repetitions alternate between the three, so that a disturbance of the machine falls on all;
ratios are formed within one repetition and given as min / median / max. The probe adds bytes as if they were floats;
bfloat16 costs gather two instructions more per register to convert, which shows where x, or its popular part, is in a
cache.
"""

import argparse
import warnings

import torch
from contest import add_graph_options, measure, parser_of, skewed_graph, spread

from hpcgnn import kernels
from hpcgnn.kernels.library import load

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


def arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        "  python jobs/bench/kernels/gather.py                              the whole table\n"
        "  python jobs/bench/kernels/gather.py --widths 47 64 --types fp32  two rows of it\n"
        "  python jobs/bench/kernels/gather.py --order clustered            neighbours near each other in memory\n"
        "  HPCGNN_VECTOR=baseline python jobs/bench/kernels/gather.py       another vector path",
        nodes=400_000,
        repetitions=5,
    )
    add_graph_options(parser, 25, "random")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 40, 47, 64, 128, 256, 512, 1024], metavar="F")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["fp32", "bf16"])
    parser.add_argument("--weighted", action="store_true", help="with a weight per edge (torch's has one anyway)")
    parser.add_argument("--no-torch", action="store_true", help="leave out torch.sparse.mm, which is slow")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    found = kernels.describe()
    if not found["native"]:
        raise SystemExit(f"gather.py measures the compiled kernels, which are not in use: {found['reason']}")
    indptr, indices = skewed_graph(options.nodes, options.degree, options.order, options.seed)
    num_edges, longest = indices.numel(), int(indptr.diff().max())
    print(
        f"{options.nodes} nodes, {num_edges} edges, longest row {longest}, {options.order} order; "
        f"{found['vector_path']}, {options.threads} threads, torch {torch.__version__}"
    )
    print(
        f"{'type':5}{'F':>5} {'gather GB/s':>21} {'probe GB/s':>21} {'torch GB/s':>21} "
        f"{'gather/probe':>21} {'gather/torch':>21}   (min / median / max)"
    )
    for name in options.types:
        dtype = TYPES[name]
        weight = torch.ones(num_edges, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        for width in options.widths:
            x = torch.randn(options.nodes, width).to(dtype)
            y = torch.empty_like(x)
            contestants = {
                "gather": lambda: kernels.gather(y, x, indptr, indices, weight=weight if options.weighted else None),
                "probe": lambda: load().kernels.probe(x, indices),
            }
            if not options.no_torch and dtype != torch.bfloat16:
                product = torch.sparse_csr_tensor(
                    indptr,
                    indices.to(torch.int64),
                    weight.to(dtype),
                    (options.nodes, options.nodes),
                    check_invariants=False,
                )
                contestants["torch"] = lambda: torch.sparse.mm(product, x)
            times = measure(contestants, options)
            volume = num_edges * width * x.element_size() / 1e9
            speeds = {key: [volume / value for value in values] for key, values in times.items()}
            fraction = [g / p for g, p in zip(speeds["gather"], speeds["probe"], strict=True)]
            multiple = [g / t for g, t in zip(speeds["gather"], speeds.get("torch", []), strict=False)]
            print(
                f"{name:5}{width:5} {spread(speeds['gather'], 1):>21} {spread(speeds['probe'], 1):>21} "
                f"{spread(speeds['torch'], 1) if multiple else '-':>21} {spread(fraction, 2):>21} "
                f"{spread(multiple, 2) if multiple else '-':>21}",
                flush=True,
            )


if __name__ == "__main__":
    main()
