"""The compiled products of rows with weights (native/products.c, projection.c, convolution.c), and whose serve."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import reference
from .interface import ELEMENT_CODES, FLOAT_PRODUCTS, ROUNDED_PRODUCTS, VECTOR_PATHS, RowRule, filled, pointer, rows_of

#: Of the library; returns whether it had no memory.
Function = Callable[..., int]
#: See `NativeProducts.own_products_from`.
MANY_THREADS = 16


def _may_round() -> bool:
    """Whether factors of products may be rounded to bfloat16: `--matmul medium`."""
    return torch.get_float32_matmul_precision() == "medium"


class NativeProducts:
    """Kernels of `products.py`, `projection.py` and `convolution.py`, compiled.

    Attributes:
        own_products_from: with this number of threads or more, products of float32 are our own; None: never.
        rounds: whether our own can round their factors to bfloat16.
    """

    _library: Any
    _path: int

    def _how(self, *dtype: torch.dtype) -> tuple[int, ...]:
        raise NotImplementedError

    def _choose_products(self, multiplies: bool | None, rounds: bool | None) -> None:
        """Arguments as of `Native`."""
        able = self._library.hg_multiplies() if self._path != VECTOR_PATHS["baseline"] else 0
        widest = self._path == VECTOR_PATHS["avx512"]
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
        return 1 if self._library.hg_should_multiply() else MANY_THREADS if widest else None

    def factors(self, dtype: torch.dtype) -> bool | None:
        """Of products of this type: whether their factors are rounded now. None where products are torch's."""
        return self.rounds and _may_round() if self.has_products(dtype) else None

    def has_products(self, dtype: torch.dtype, threads: int | None = None) -> bool:
        """Whether products of this type are not torch's. threads: of a process (None: of this one, now)."""
        fewest = self.own_products_from
        return fewest is not None and dtype == torch.float32 and (threads or torch.get_num_threads()) >= fewest

    def multiply(self, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, add: bool) -> None:
        rounded = self.factors(weight.dtype)
        if rounded is None:
            return reference.multiply(out, x, weight, bias, add)
        how = self._path, rounded, torch.get_num_threads()
        matrices = *rows_of(out), pointer(x), ELEMENT_CODES[x.dtype], x.stride(0), pointer(weight), *weight.stride()
        if self._library.hg_multiply(*how, *matrices, pointer(bias), *x.shape, out.shape[1], add):
            raise MemoryError("a product: no memory for its weights")

    def project(self, y: Tensor, x: Tensor, weight: Tensor, rule: RowRule | None) -> None:
        """rule: (key, threshold, scale, ids) of dropout after ELU, with ids of None if there is no dropout; None:
        neither.
        """
        self._project(self._library.hg_project, y, x, weight, {}, rule)

    def project_backward(
        self,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        rule: RowRule | None,
        gx: Tensor | None,
        g_weight: Tensor,
        dots: Tensor | None,
        bias: Tensor | None,
        sums: Tensor | None,
        y_sums: Tensor | None,
        add: bool,
        scaled: bool,
    ) -> None:
        tensors = {"gx": gx, "g_weight": g_weight, "dots": dots, "bias": bias, "sums": sums, "y_sums": y_sums}
        heads = 1 if dots is None else dots.shape[1]
        self._project(
            self._library.hg_project_backward, gradient, x, weight, tensors, rule, heads=heads, add=add, scaled=scaled
        )

    def _project(
        self,
        function: Function,
        y: Tensor,
        x: Tensor,
        weight: Tensor,
        tensors: dict[str, Tensor | None],
        rule: RowRule | None,
        **more: int,
    ) -> None:
        key, threshold, scale, ids = rule or (0, 0, 1.0, None)
        arguments = filled(
            "hg_projection_args",
            tensors | {"y": y, "x": x, "weight": weight, "ids": ids},
            rows=x.shape[0],
            depth=x.shape[1],
            width=y.shape[1],
            weight_down=weight.stride(0),
            weight_across=weight.stride(1),
            scale=scale,
            key=key,
            threshold=threshold,
            elu=rule is not None,
            rounded=self.factors(weight.dtype),
            x_type=ELEMENT_CODES[x.dtype],
            y_type=ELEMENT_CODES[y.dtype],
            **more,
        )
        if function(*self._how(), arguments):
            raise MemoryError("a projection: no memory to work in")

    def convolve(self, function: str, tensors: dict[str, Tensor | None], **more: float) -> None:
        """function: hg_convolve or hg_convolve_backward."""
        arguments = filled("hg_convolution_args", tensors, rounded=self.factors(torch.float32), **more)
        if getattr(self._library, function)(*self._how(), arguments):
            raise MemoryError("a convolution: no memory to work in")
