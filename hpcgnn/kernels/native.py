"""The compiled library on one vector path, and whose products of float32 it uses: its own or torch's."""

import ctypes

import torch

from .interface import FLOAT_PRODUCTS, INTERFACE, ROUNDED_PRODUCTS, VECTOR_PATHS

#: See `Native.own_products_from`.
MANY_THREADS = 16


class Native:
    """What kernels ask of the compiled library before they call it.

    Attributes:
        library, path: the functions, and the code of the vector path.
        own_products_from: with this number of threads or more, products of float32 are our own; None: never.
        rounds: whether our own can round their factors to bfloat16.
    """

    def __init__(
        self, library: ctypes.CDLL, vector_path: str, multiplies: bool | None = None, rounds: bool | None = None
    ) -> None:
        """multiplies, rounds: whether products of float32 are our own, and those of factors rounded to bfloat16; None:
        where that is faster. A path or a processor without such products has none, whatever is asked for.
        """
        for name, (result, arguments) in INTERFACE.functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments.values())
        self.library, self.path = library, VECTOR_PATHS[vector_path]
        able = library.hg_multiplies() if vector_path != "baseline" else 0
        widest = vector_path == "avx512"
        fewest = self._fewest_threads(widest) if multiplies is None else 1 if multiplies else None
        self.own_products_from = fewest if able & FLOAT_PRODUCTS else None
        wanted = widest if rounds is None else rounds
        self.rounds = bool(able & ROUNDED_PRODUCTS) and self.own_products_from is not None and wanted

    def _fewest_threads(self, widest: bool) -> int | None:
        """On AMD processors our products are faster than MKL's. On others they are slower, but with many threads an
        epoch takes as long, and a third less memory (docs/kernels.md has the figures).
        """
        if not torch.backends.mkl.is_available():
            return None
        return 1 if self.library.hg_should_multiply() else MANY_THREADS if widest else None

    def supported_paths(self) -> list[str]:
        return [name for name, code in VECTOR_PATHS.items() if self.library.hg_supports(code)]

    def has_products(self, dtype: torch.dtype, threads: int | None = None) -> bool:
        """Whether products of this type are not torch's. threads: of a process (None: of this one, now)."""
        fewest = self.own_products_from
        return fewest is not None and dtype == torch.float32 and (threads or torch.get_num_threads()) >= fewest

    def factors(self, dtype: torch.dtype) -> bool | None:
        """Of products of this type: whether their factors are rounded now (`--matmul medium`). None where products are
        torch's.
        """
        if not self.has_products(dtype):
            return None
        return self.rounds and torch.get_float32_matmul_precision() == "medium"
