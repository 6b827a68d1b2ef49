"""Finds, loads and describes the compiled library, or says why there is none.

The library is loaded at the first call of a kernel, not at import, and always after torch: it asks for the OpenMP
runtime by the soname `libgomp.so.1`, and finding the one that torch bundles already in the process it uses that one.
Two runtimes would keep two pools of threads that fight for the same cores. (Compiled with clang
it asks for libomp instead and works, but with that second pool; `describe` shows it. gcc is the one to use.)

Environment variables, read once:

HPCGNN_KERNELS   auto (default): native if it loads, else the reference with one warning;
                 native: an error if it does not load; reference: pure torch.
HPCGNN_VECTOR    baseline, avx2 or avx512 forces a vector path; by default the widest that the processor has.
"""

import ctypes
import functools
import importlib.machinery
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from . import reference
from .interface import VECTOR_PATHS
from .native import Native


@dataclass(frozen=True)
class Loaded:
    """What `load` found: `kernels` has the functions of `reference`; `reason` says why they are not native."""

    kernels: object
    file: str | None
    vector_path: str | None
    reason: str | None


@functools.cache
def load() -> Loaded:
    """The kernels to use, chosen once per process. Raises ValueError for a wrong environment variable and ImportError
    if HPCGNN_KERNELS=native cannot be met. Warns (once) if it falls back unasked."""
    wanted = os.environ.get("HPCGNN_KERNELS", "auto")
    if wanted not in ("auto", "native", "reference"):
        raise ValueError(f"HPCGNN_KERNELS must be auto, native or reference, not {wanted!r}")
    if wanted == "reference":
        return Loaded(reference, None, None, "HPCGNN_KERNELS=reference")
    try:
        path = _file()
        library = ctypes.CDLL(str(path))
    except (ImportError, OSError) as error:
        if wanted == "native":
            raise ImportError(f"HPCGNN_KERNELS=native, but {error}") from error
        warnings.warn(
            f"{error}. The pure-torch kernels serve instead: same results, many times slower, more memory. "
            "Install the package where a C compiler with OpenMP is (gcc >= 9 or clang), or set "
            "HPCGNN_KERNELS=reference to say that this is intended.",
            RuntimeWarning,
            stacklevel=3,
        )
        return Loaded(reference, None, None, str(error))
    vector_path = _vector_path(library)
    return Loaded(Native(library, vector_path), str(path), vector_path, None)


def kernels():
    """The module or object whose functions do the work; see `Loaded`."""
    return load().kernels


def describe() -> dict:
    """Which kernels run in this process, as plain values for a run record.

    Keys: `native` (bool), `reason` (str or None: why not), `file`, `vector_path` (str or None), `vector_paths` (those
    this processor could use), `openmp_runtimes` (files of the OpenMP runtimes in the process; more than one is a
    fault), `threads` (int: torch's setting, which the kernels follow at each call), `products` and `rounded_products`
    (whose kernel multiplies float32 matrices as they are, and with rounded factors: "own" or "torch", see products.py;
    "none": our own do not round here).
    """
    loaded = load()
    native = loaded.reason is None
    own = native and loaded.kernels.multiplies
    return {
        "native": native,
        "reason": loaded.reason,
        "file": loaded.file,
        "vector_path": loaded.vector_path,
        "vector_paths": loaded.kernels.supported_paths() if native else [],
        "openmp_runtimes": openmp_runtimes(),
        "threads": torch.get_num_threads(),
        "products": "own" if own else "torch",
        "rounded_products": "torch" if not own else "own" if loaded.kernels.rounds else "none",
    }


def openmp_runtimes() -> list[str]:
    """Files of the OpenMP runtimes mapped into this process (empty where /proc is missing)."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    return sorted(file for file in files if Path(file).name.startswith(("libgomp", "libomp", "libiomp")))


def _file() -> Path:
    here = Path(__file__).parent
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        if (path := here / f"_native{suffix}").exists():
            return path
    raise ImportError(f"the compiled kernels are missing: no _native*.so in {here}")


def _vector_path(library: ctypes.CDLL) -> str:
    supported = [name for code, name in enumerate(VECTOR_PATHS) if library.hg_supports(code)]
    forced = os.environ.get("HPCGNN_VECTOR")
    if forced is None:
        return supported[-1]
    if forced not in supported:
        raise ValueError(f"HPCGNN_VECTOR must be one of {', '.join(supported)} on this processor, not {forced!r}")
    return forced
