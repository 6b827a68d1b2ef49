"""Finds, loads and describes the compiled library, or gives the reason why there is none.

The library is loaded at the first call of a kernel, not at import, and always after torch. It needs the OpenMP runtime
by the soname `libgomp.so.1`, and uses torch's bundled one, which is then already in the process. Two runtimes would
keep two pools of threads that fight for the same cores. Compiled with clang it needs libomp instead and works, but with
that second pool; `describe` shows it. So use gcc.

Environment variables, read once:

HPCGNN_KERNELS   auto (default): native if there is a library, else the reference with one warning;
                 native: an error if there is none; reference: pure torch.
HPCGNN_VECTOR    baseline, avx2 or avx512 forces a vector path; by default the widest that the processor has.

A library built from other sources than the present ones would get arguments that it does not know. It is never used:
the error names the difference and the remedy.
"""

import contextlib
import ctypes
import math
import os
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hpcgnn.cores import openmp_runtimes
from hpcgnn.errors import ConfigError, HpcgnnError

from .interface import INTERFACE, VECTOR_PATHS
from .sources import fingerprint

#: The library of this interpreter, else the one of a wheel, which serves every Python. Libraries of other interpreters
#: may lie in the same folder.
FILE = Path(__file__).with_name("_native" + sysconfig.get_config_var("EXT_SUFFIX"))
if not FILE.exists() and FILE.with_name("_native.abi3.so").exists():
    FILE = FILE.with_name("_native.abi3.so")


#: See `Native.own_products_from`.
MANY_THREADS = 16


class Native:
    """What kernels ask of the compiled library before they call it.

    Attributes:
        library, path: the functions, and the code of the vector path.
        own_products_from: with this number of threads or more, products of float32 are our own.
    """

    def __init__(self, library: ctypes.CDLL, vector_path: str) -> None:
        for name, (result, arguments, _) in INTERFACE.functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments.values())
        self.library, self.path = library, VECTOR_PATHS[vector_path]
        self.own_products_from = math.inf
        # On AMD processors our products are faster than MKL's. On others they are slower, but with many threads an
        # epoch takes as long, and a third less memory (docs/kernels.md).
        multiplies = library.hg_multiplies()
        if vector_path != "baseline" and multiplies and torch.backends.mkl.is_available():
            many = MANY_THREADS if vector_path == "avx512" else math.inf
            self.own_products_from = 1 if multiplies == 2 else many

    def supported_paths(self) -> list[str]:
        return [name for name, code in VECTOR_PATHS.items() if self.library.hg_supports(code)]


class LibraryError(HpcgnnError, ImportError):
    """The compiled library cannot be used: there is none though it is demanded, or it is of other sources."""


@dataclass(frozen=True)
class Loaded:
    """`native`: None where the kernels are torch's; `reason` then says why."""

    native: Native | None
    file: str | None = None
    vector_path: str | None = None
    reason: str | None = None

    def on(self, vector_path: str) -> "Loaded":
        """The same library on another vector path."""
        assert self.native is not None, "torch has no vector paths"
        return replace(self, native=Native(self.native.library, vector_path), vector_path=vector_path)


#: watch(name of a kernel, its arguments) -> the context manager to enter while the kernel runs.
Watch = Callable[[str, tuple[Any, ...]], AbstractContextManager[object]]


class _State:
    """Which kernels are in use, once a first one was called, and who watches them."""

    loaded: Loaded | None = None
    watch: Watch | None = None

    def __init__(self) -> None:
        self.watches: list[Watch] = []


state = _State()


def load(check_sources: bool = True) -> Loaded:
    """Return the kernels in use: the result of `choose` at the first call, or the argument of `use`.

    check_sources: as of `choose`, at the first call.
    """
    if state.loaded is None:
        state.loaded = choose(check_sources=check_sources)
    return state.loaded


def use(loaded: Loaded | None) -> Loaded | None:
    """Use these kernels from now on (None: the result of `choose`); return the previous ones."""
    before, state.loaded = state.loaded, loaded
    return before


def choose(file: Path | None = None, check_sources: bool = True) -> Loaded:
    """Return the kernels that the environment selects. Warns if it falls back by itself.

    Args:
        file: the compiled library (None: FILE).
        check_sources: whether to compare its hash with the sources; another rank of the node may have done that.

    Raises:
        ConfigError: an environment variable has a wrong value.
        LibraryError: HPCGNN_KERNELS=native without a library, or a library of other sources.
    """
    wanted = os.environ.get("HPCGNN_KERNELS", "auto")
    if wanted not in ("auto", "native", "reference"):
        raise ConfigError(f"HPCGNN_KERNELS must be auto, native or reference, not {wanted!r}")
    if wanted == "reference":
        return Loaded(None, reason="HPCGNN_KERNELS=reference")
    path = FILE if file is None else file
    try:
        if not path.exists():
            raise OSError(f"the compiled kernels are missing: no {path.name} in {path.parent}")
        library = ctypes.CDLL(str(path))
    except OSError as error:
        if wanted == "native":
            raise LibraryError(f"HPCGNN_KERNELS=native, but {error}") from error
        warnings.warn(
            f"{error}. The pure-torch kernels serve instead: same results, many times slower, more memory. "
            "Install the package where a C compiler with OpenMP is (gcc >= 9 or clang), or set "
            "HPCGNN_KERNELS=reference to say that this is intended.",
            RuntimeWarning,
            stacklevel=4,
        )
        return Loaded(None, reason=str(error))
    if difference := _difference(library, check_sources):
        raise LibraryError(
            f"{path} {difference}; build it again with `pip install -e .` in the project's folder, or set "
            "HPCGNN_KERNELS=reference to do without it"
        )
    vector_path = _vector_path(library)
    return Loaded(Native(library, vector_path), str(path), vector_path)


def _difference(library: ctypes.CDLL, check_sources: bool) -> str | None:
    """Return the difference between the library's sources and the present ones; None if there is none."""
    if not hasattr(library, "hg_sources"):
        return "is of an earlier version: it does not say what it was built from"
    library.hg_sources.restype = ctypes.c_char_p
    if check_sources and (built := library.hg_sources().decode()) != (here := fingerprint()):
        return f"was built from other sources ({built}) than lie beside it ({here})"
    return None


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """While the body runs, every kernel is called within `watch(its name, its arguments)`."""
    state.watches.append(watch)
    state.watch = watch
    try:
        yield
    finally:  # ranks that are threads of one process end theirs in any order
        state.watches.remove(watch)
        state.watch = state.watches[-1] if state.watches else None


def describe() -> dict[str, Any]:
    """Which kernels run in this process, as plain values for a run record.

    Returns:
        native: bool.
        reason: str or None, the reason for the reference.
        file, vector_path: str or None.
        vector_paths: the paths that this processor could use.
        openmp_runtimes: files of the OpenMP runtimes in the process; more than one is a fault.
        threads: int, torch's setting, which the kernels follow at each call.
        products: the kernel of float32 products: "own" or "torch" (see projection.py).
    """
    loaded = load()
    native = loaded.native
    own = native is not None and torch.get_num_threads() >= native.own_products_from
    return {
        "native": native is not None,
        "reason": loaded.reason,
        "file": loaded.file,
        "vector_path": loaded.vector_path,
        "vector_paths": [] if native is None else native.supported_paths(),
        "openmp_runtimes": openmp_runtimes(),
        "threads": torch.get_num_threads(),
        "products": "own" if own else "torch",
    }


def _vector_path(library: ctypes.CDLL) -> str:
    supported = [name for name, code in VECTOR_PATHS.items() if library.hg_supports(code)]
    forced = os.environ.get("HPCGNN_VECTOR")
    if not supported:
        raise LibraryError(
            "the compiled kernels are for another processor alone; build them again with `pip install -e .` in the "
            "project's folder, without HPCGNN_VECTOR_PATHS"
        )
    if forced is None:
        return supported[-1]
    if forced not in supported:
        raise ConfigError(f"HPCGNN_VECTOR must be one of {', '.join(supported)} on this processor, not {forced!r}")
    return forced
