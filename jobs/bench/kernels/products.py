"""How fast are the products of many rows with weights: ours, those of torch's library, and those of OpenBLAS?

`kernels.multiply` and `project_backward` are our own on AMD processors; elsewhere "ours" is torch's. OpenBLAS is that
of numpy's wheel, called through ctypes: a product is one call of its cblas_sgemm by each thread, for a share of the
rows. The table gives GFLOP/s as min / median / max, and the ratios of the others' time to ours within a repetition
(above 1: ours is faster). Repetitions alternate; each goes through the rows in the tiles that a layer works on at a
time.

--path avx2 holds all three to a narrower vector path than the processor has.
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

import itertools

import numpy
import torch
from contest import measure, parser_of, spread

from hpcgnn import kernels
from hpcgnn.kernels import reference
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


def arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        "  python jobs/bench/kernels/products.py                   the shapes of three layers of 256, 40 classes\n"
        "  python jobs/bench/kernels/products.py --path avx2        the same without AVX-512\n"
        "  python jobs/bench/kernels/products.py --matmul medium    the same with factors rounded to bf16\n"
        "  python jobs/bench/kernels/products.py --shapes 128x64 --threads 4",
        nodes=170_000,
        repetitions=9,
    )
    parser.add_argument("--shapes", nargs="+", default=["256x264", "256x256", "128x256", "256x40"], metavar="INxOUT")
    parser.add_argument("--matmul", choices=["highest", "medium"], default="highest", help="as of `hpcgnn train`")
    parser.add_argument("--path", choices=HELD, help="all three on this vector path (default: what each chooses)")
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
        matrices = [(m.data_ptr(), max(1, stride)) for m, (_, stride) in zip((x, weight), placed, strict=True)]
        order = 101, placed[0][0], placed[1][0], rows, width, depth
        self._sgemm(*order, 1.0, *matrices[0], *matrices[1], float(add), out.data_ptr(), out.stride(0))

    def _shares(self, rows):
        bounds = [rows * k // self._threads for k in range(self._threads + 1)]
        return [slice(*pair) for pair in itertools.pairwise(bounds)]

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
        shares = list(zip(parts, self._shares(len(x)), strict=True))
        self._each(lambda one: self._multiply(one[0], x[one[1]].t(), g[one[1]], one[0] is sums), shares)
        for part in parts[1:]:
            sums += part


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
    others = [[other / own for own, other in zip(times["ours"], times[whose], strict=True)] for whose in WHOSE[1:]]
    return "".join(f"{spread(each, 3):>22}" for each in others)


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
    print(f"{options.nodes} rows; clock: {options.clock}")
    by_shape(options, blas)
    return 0


if __name__ == "__main__":
    sys.exit(main())
