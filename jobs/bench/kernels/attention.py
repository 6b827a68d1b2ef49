"""How fast is the fused attention of one layer, against gather at the same width?

Attention reads one streamed row per edge, as gather does: F + H elements forwards, F + 3 H (or F / H + 3 H with
averaged heads) backwards, where gather reads F. Being bound by memory it should take little longer; what it takes more
is the price of the softmax. The table gives milliseconds of one pass over all edges, and the ratio to gather's within
one repetition (1 is the bound), as min / median / max. Repetitions alternate between the contestants, so that a
disturbance of the machine falls on all.
"""

import argparse

import torch
from contest import add_graph_options, measure, parser_of, skewed_graph, spread

from hpcgnn import kernels

TYPES = {"fp32": torch.float32, "fp64": torch.float64}


def arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        "  python jobs/bench/kernels/attention.py                                 the shapes that matter\n"
        "  python jobs/bench/kernels/attention.py --shapes 4x64 --dropout 0.6     one of them, with dropout\n"
        "  python jobs/bench/kernels/attention.py --order clustered --threads 2   neighbours near in memory",
        nodes=170_000,
        repetitions=5,
    )
    add_graph_options(parser, 15, "clustered")
    parser.add_argument("--shapes", nargs="+", default=["1x40", "4x32", "4x64", "8x8"], metavar="HxD")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["fp32"])
    parser.add_argument("--shared", action="store_true", help="backwards with averaged heads: one gy for all of them")
    parser.add_argument("--dropout", type=float, default=0.0, help="rate of attention dropout")
    return parser.parse_args()


def layer(indptr, indices, heads, width, dtype, options):
    """The contestants: functions without arguments. The skewed graph serves as its own transpose."""
    num, columns = options.nodes, heads * width
    source, a_dst = torch.randn(num, columns + heads, dtype=dtype), torch.randn(num, heads, dtype=dtype)
    y, top = torch.zeros(num, columns, dtype=dtype), torch.full((num, heads), -torch.inf, dtype=dtype)
    denominator, lse = torch.zeros(num, heads, dtype=dtype), torch.empty(num, heads, dtype=dtype)
    ids = torch.arange(num)
    common = {"heads": heads, "slope": 0.2}
    if options.dropout:
        common["dropout"] = (options.dropout, kernels.stream_key(options.seed), ids, ids)
    g_width = width if options.shared else columns
    remote = torch.cat(
        [
            torch.randn(num, g_width, dtype=dtype),
            a_dst,
            torch.full((num, heads), 3.0, dtype=dtype),
            torch.randn(num, heads, dtype=dtype),
        ],
        1,
    )
    gz, ga_src, ga_dst = torch.zeros_like(y), torch.zeros_like(top), torch.zeros_like(top)
    x, out = source[:, :columns].contiguous(), torch.empty_like(y)

    def reset():
        y.zero_()
        top.fill_(-torch.inf)
        denominator.zero_()

    reset()
    return {
        "gather": lambda: kernels.gather(out, x, indptr, indices),
        "reset": reset,
        "forward": lambda: kernels.attend_forward(y, top, denominator, a_dst, source, indptr, indices, **common),
        "finish": lambda: kernels.attend_finish(y, top, denominator, lse),
        "backward": lambda: kernels.attend_backward(
            gz, ga_src, ga_dst, source, remote, indptr, indices, shared=options.shared, **common
        ),
    }


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    found = kernels.describe()
    if not found["native"]:
        raise SystemExit(f"attention.py measures the compiled kernels, which are not in use: {found['reason']}")
    indptr, indices = skewed_graph(options.nodes, options.degree, options.order, options.seed)
    longest = int(indptr.diff().max())
    print(
        f"{options.nodes} nodes, {indices.numel()} edges, longest row {longest}, {options.order} order; "
        f"{found['vector_path']}, {options.threads} threads, dropout {options.dropout}, torch {torch.__version__}"
    )
    print(
        f"{'type':5}{'HxD':>6} {'gather ms':>23} {'forward ms':>23} {'finish ms':>20} {'backward ms':>23} "
        f"{'forward/gather':>20} {'backward/gather':>20}   (min / median / max)"
    )
    for name in options.types:
        for shape in options.shapes:
            heads, width = map(int, shape.split("x"))
            times = measure(layer(indptr, indices, heads, width, TYPES[name], options), options)
            row = [spread([1e3 * t for t in times[key]], 1) for key in ("gather", "forward", "finish", "backward")]
            ratios = [
                spread([t / g for t, g in zip(times[key], times["gather"])], 2) for key in ("forward", "backward")
            ]
            print(
                f"{name:5}{shape:>6} {row[0]:>23} {row[1]:>23} {row[2]:>20} {row[3]:>23} "
                f"{ratios[0]:>20} {ratios[1]:>20}",
                flush=True,
            )


if __name__ == "__main__":
    main()
