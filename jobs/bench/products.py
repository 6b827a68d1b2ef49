"""How fast are the products of many rows with weights, ours and those of torch's library?

`kernels.multiply` and `project_backward` are our own on AMD processors; elsewhere both columns are torch's. The table
gives GFLOP/s as min / median / max, and the ratio of ours to torch's within a repetition. Repetitions alternate; each
goes through the rows in the tiles that a layer works on at a time.
"""

import argparse

import torch
from gather import measure, spread

from hpcgnn import kernels
from hpcgnn.kernels import reference
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.row_tiles import row_tiles


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  python jobs/bench/products.py                          the shapes of three layers of 256, 40 classes\n"
        "  python jobs/bench/products.py --matmul medium           the same with factors rounded to bf16\n"
        "  python jobs/bench/products.py --shapes 128x64 --threads 4",
    )
    parser.add_argument("--nodes", type=int, default=170_000, help="rows; they should be larger than the caches")
    parser.add_argument("--shapes", nargs="+", default=["256x264", "256x256", "128x256", "256x40"], metavar="INxOUT")
    parser.add_argument("--matmul", choices=["highest", "medium"], default="highest", help="as of `hpcgnn train`")
    parser.add_argument("--repetitions", type=int, default=9, help="after one that warms up and does not count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: processor time of all threads / threads, for machines whose cores are shared with other work",
    )
    return parser.parse_args()


def contestants(nodes, d_in, d_out):
    """x W, and g W' and x' g as the gradients need them, by tiles of rows: functions without arguments."""
    arena = Arena()
    x, y, gx = (arena.empty(nodes, width).normal_() for width in (d_in, d_out, d_in))
    weight = torch.randn(d_in, d_out)
    work = {"x W": (y, x, weight), "g W'": (gx, y, weight.t())}

    g_weight = torch.zeros_like(weight)

    def tiled(function, out, rows_of, factor):
        return lambda: [function(out[rows], rows_of[rows], factor) for rows in row_tiles(nodes)]

    def by_torch(out, rows_of, factor):
        reference.multiply(out, rows_of, factor, None, False)

    found = {
        (name, whose): tiled(function, *matrices)
        for name, matrices in work.items()
        for whose, function in (("ours", kernels.multiply), ("torch", by_torch))
    }
    tiles = [(x[rows], y[rows]) for rows in row_tiles(nodes)]
    found["x' g", "ours"] = lambda: [kernels.project_backward(None, g_weight, *tile, weight) for tile in tiles]
    found["x' g", "torch"] = lambda: [g_weight.addmm_(part.t(), g) for part, g in tiles]
    return found


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision(options.matmul)
    print(
        f"{options.nodes} rows, {options.threads} threads, torch {torch.__version__}; here `multiply` is "
        f"{kernels.describe()['rounded_products' if options.matmul == 'medium' else 'products']}"
    )
    print(
        f"{'shape':>10} {'product':>8} {'ours GFLOP/s':>20} {'torch GFLOP/s':>20} {'ours/torch':>20}   (min / median "
        "/ max)"
    )
    for shape in options.shapes:
        d_in, d_out = map(int, shape.split("x"))
        times, gflop = measure(contestants(options.nodes, d_in, d_out), options), 2e-9 * options.nodes * d_in * d_out
        for name in ("x W", "g W'", "x' g"):
            ours, torchs = times[name, "ours"], times[name, "torch"]
            rates = [spread([gflop / t for t in each], 0) for each in (ours, torchs)]
            ratio = spread([b / a for a, b in zip(ours, torchs)], 2)
            print(f"{shape:>10} {name:>8} {rates[0]:>20} {rates[1]:>20} {ratio:>20}", flush=True)


if __name__ == "__main__":
    main()
