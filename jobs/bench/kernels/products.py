"""How fast are the products of many rows with weights: ours, those of torch's library, and those of OpenBLAS?

`kernels.multiply` and `project_backward` are our own on AMD processors; elsewhere "ours" is torch's. OpenBLAS is that
of numpy's wheel, called through ctypes: a product is one call of its cblas_sgemm by each thread, for a share of the
rows. The table gives GFLOP/s as min / median / max, and the ratios of the others' time to ours within a repetition
(above 1: ours is faster). Repetitions alternate; each goes through the rows in the tiles that a layer works on at a
time.

With --graph it is whole epochs instead (three layers of 256): the products of its layers are made by each of the three
in turn, an epoch at a time, and the table gives seconds of an epoch's training, and the same ratios. --path avx2 holds
all three to a narrower vector path than the processor has.
"""

import argparse
import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
from hpcgnn.__main__ import set_process_policies

set_process_policies()

import numpy
import torch
from gather import measure, spread
from shared.trainer import make_trainer, run_benchmark

from hpcgnn import kernels
from hpcgnn.kernels import library, reference
from hpcgnn.kernels.native import Native
from hpcgnn.memory.arena import Arena
from hpcgnn.ops.row_tiles import row_tiles

# What holds each of the three to a path; libraries read these when they are loaded.
HELD = {
    "avx2": {
        "HPCGNN_VECTOR": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }
}
DISCARD = 2  # epochs that warm up


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  python jobs/bench/kernels/products.py                       the shapes of three layers of 256, 40 classes\n"
        "  python jobs/bench/kernels/products.py --path avx2            the same without AVX-512\n"
        "  python jobs/bench/kernels/products.py --matmul medium        the same with factors rounded to bf16\n"
        "  python jobs/bench/kernels/products.py --shapes 128x64 --threads 4\n"
        "  python jobs/bench/kernels/products.py --graph g1.h5 --model gcn --threads 1       whole epochs",
    )
    parser.add_argument("--nodes", type=int, default=170_000, help="rows; they should be larger than the caches")
    parser.add_argument("--shapes", nargs="+", default=["256x264", "256x256", "128x256", "256x40"], metavar="INxOUT")
    parser.add_argument("--matmul", choices=["highest", "medium"], default="highest", help="as of `hpcgnn train`")
    parser.add_argument("--repetitions", type=int, default=9, help="after one that warms up and does not count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--path", choices=HELD, help="all three on this vector path (default: what each chooses)")
    parser.add_argument("--graph", help="graph file: whole epochs over it")
    parser.add_argument("--model", default="sage", help="with --graph: sage or gcn (default: sage)")
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: processor time of all threads / threads, for machines whose cores are shared with other work",
    )
    return parser.parse_args()


class OpenBlas:
    """The OpenBLAS in numpy's wheel; products are shared out by rows to so many threads of Python, one call each."""

    def __init__(self, threads: int):
        found = list((Path(numpy.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas64_*"))
        if not found:
            raise SystemExit("products.py: no OpenBLAS beside numpy: it comes with the wheels of numpy for Linux")
        blas = ctypes.CDLL(str(found[0]))
        number, matrix = [ctypes.c_float], [ctypes.c_void_p, ctypes.c_int64]
        self._sgemm = blas.scipy_cblas_sgemm64_
        self._sgemm.restype = None
        self._sgemm.argtypes = [ctypes.c_int] * 3 + [ctypes.c_int64] * 3 + number + matrix * 2 + number + matrix
        blas.scipy_openblas_set_num_threads64_(1)
        blas.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
        self.core = blas.scipy_openblas_get_corename64_().decode()
        self._threads, self._pool = threads, ThreadPoolExecutor(max(1, threads - 1))

    def _multiply(self, out, x, weight, add):
        """out (+)= x weight, by one thread."""
        (rows, depth), width = x.shape, weight.shape[1]
        placed = [(111, m.stride(0)) if m.stride(1) == 1 else (112, m.stride(1)) for m in (x, weight)]
        matrices = [(m.data_ptr(), max(1, stride)) for m, (_, stride) in zip((x, weight), placed)]
        order = 101, placed[0][0], placed[1][0], rows, width, depth
        self._sgemm(*order, 1.0, *matrices[0], *matrices[1], float(add), out.data_ptr(), out.stride(0))

    def _shares(self, rows):
        bounds = [rows * k // self._threads for k in range(self._threads + 1)]
        return [slice(*pair) for pair in zip(bounds, bounds[1:])]

    def _each(self, function, shares):
        """function(share) by a thread each; this one takes the first."""
        quietly = torch.no_grad()(function)  # what records gradients is a matter of each thread
        others = [self._pool.submit(quietly, share) for share in shares[1:]]
        quietly(shares[0])
        for other in others:
            other.result()

    def multiply(self, out, x, weight, bias=None, add=False):
        def some(rows):
            if bias is not None:
                out[rows] = bias
            self._multiply(out[rows], x[rows], weight, add or bias is not None)

        self._each(some, self._shares(len(x)))

    def add_transposed(self, sums, x, g):
        """sums += x' g: each thread's rows by themselves, then their sums."""
        parts = [sums, *(torch.empty_like(sums) for _ in range(self._threads - 1))]
        shares = list(zip(parts, self._shares(len(x))))
        self._each(lambda one: self._multiply(one[0], x[one[1]].t(), g[one[1]], one[0] is sums), shares)
        for part in parts[1:]:
            sums += part


class Borrowed(Native):
    """The compiled kernels with products of OpenBLAS, where rows pass through nothing before."""

    def __init__(self, compiled, path, blas):
        super().__init__(compiled, path, multiplies=True)
        self._blas = blas

    def multiply(self, out, x, weight, bias, add):
        self._blas.multiply(out, x, weight, bias, add)

    def project_backward(self, gradient, x, weight, rule, gx, g_weight, dots, bias, sums, y_sums, add, scaled):
        if rule is not None:
            raise SystemExit("products.py: expected layers without ELU before their products, as of sage and gcn")
        if y_sums is not None:
            self.bias_gradient(y_sums, gradient)
        self._blas.add_transposed(g_weight, x, gradient)
        if gx is not None:
            self._blas.multiply(gx, gradient, weight.t(), None, add)


def contestants(nodes, d_in, d_out, blas):
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
        for whose, function in (("ours", kernels.multiply), ("torch", by_torch), ("OpenBLAS", blas.multiply))
    }
    tiles = [(x[rows], y[rows]) for rows in row_tiles(nodes)]
    found["x' g", "ours"] = lambda: [kernels.project_backward(None, g_weight, *tile, weight) for tile in tiles]
    found["x' g", "torch"] = lambda: [g_weight.addmm_(part.t(), g) for part, g in tiles]
    found["x' g", "OpenBLAS"] = lambda: [blas.add_transposed(g_weight, *tile) for tile in tiles]
    return found


def by_shape(options, blas) -> None:
    """The table of products by themselves."""
    print(f"{'shape':>10} {'product':>8}" + "".join(f"{whose + ' GFLOP/s':>22}" for whose in WHOSE), end="")
    print(f"{'torch/ours':>22}{'OpenBLAS/ours':>22}   (min / median / max)")
    for shape in options.shapes:
        d_in, d_out = map(int, shape.split("x"))
        times = measure(contestants(options.nodes, d_in, d_out, blas), options)
        gflop = 2e-9 * options.nodes * d_in * d_out
        for name in ("x W", "g W'", "x' g"):
            rates = "".join(f"{spread([gflop / t for t in times[name, whose]], 0):>22}" for whose in WHOSE)
            print(f"{shape:>10} {name:>8}{rates}{ratios({w: times[name, w] for w in WHOSE})}", flush=True)


WHOSE = ("ours", "torch", "OpenBLAS")


def ratios(times: dict) -> str:
    """Of the others' seconds to ours, turn by turn."""
    others = [[other / own for own, other in zip(times["ours"], times[whose])] for whose in WHOSE[1:]]
    return "".join(f"{spread(each, 3):>22}" for each in others)


def whole_epochs(session, config, options, blas):
    """The table of epochs whose products are made by each in turn. Returns 0."""
    before = library.load()
    if before.reason is not None or before.vector_path == "baseline":
        raise SystemExit("products.py: whole epochs need compiled kernels, on avx2 or avx512")
    serving = {
        "ours": before.on(before.vector_path, multiplies=True),
        "torch": before.on(before.vector_path, multiplies=False),
        "OpenBLAS": library.Loaded(Borrowed(before.library, before.vector_path, blas)),
    }
    trainer, config, about = make_trainer(config, session)
    seconds = {"processor": {whose: [] for whose in WHOSE}, "wall": {whose: [] for whose in WHOSE}}
    for turn in range(DISCARD + options.repetitions):
        for number in range(len(WHOSE)):
            whose = WHOSE[(turn + number) % len(WHOSE)]  # none always comes after the same one
            library.use(serving[whose])
            trainer.clock.take()
            trainer.clock.take_costs()
            trainer.step(turn * len(WHOSE) + number)
            wall, costs = trainer.clock.take(), trainer.clock.take_costs()
            if turn >= DISCARD:
                seconds["wall"][whose].append(sum(wall.values()))
                seconds["processor"][whose].append(costs["user_seconds"] + costs["system_seconds"])
    library.use(before)
    if session.comm.rank == 0:
        print(f"{options.model} on {about['nodes']} nodes, {about['edges']} edges; rank 0 of {session.comm.size}")
        print(f"{'seconds':>10}" + "".join(f"{whose:>22}" for whose in WHOSE), end="")
        print(f"{'torch/ours':>22}{'OpenBLAS/ours':>22}   (min / median / max)")
        for kind, times in seconds.items():
            print(f"{kind:>10}" + "".join(f"{spread(times[whose], 3):>22}" for whose in WHOSE) + ratios(times))
    return 0


def main() -> int:
    options = arguments()
    held = HELD.get(options.path, {})
    if any(os.environ.get(name) != value for name, value in held.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | held)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision(options.matmul)
    blas, found = OpenBlas(options.threads), kernels.describe()
    print(
        f"{options.threads} threads, torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), OpenBLAS "
        f"for {blas.core}; here `multiply` is "
        f"{found['rounded_products' if options.matmul == 'medium' else 'products']}, {found['vector_path']}"
    )
    if options.graph is None:
        print(f"{options.nodes} rows; clock: {options.clock}")
        by_shape(options, blas)
        return 0

    def measured(session, config):
        return whole_epochs(session, config, options, blas)

    return run_benchmark("products", measured, options.graph, options.model, (), options.threads)


if __name__ == "__main__":
    sys.exit(main())
