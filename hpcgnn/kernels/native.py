"""The compiled kernels behind the signatures of `reference.py`, and whose products are.

Arguments arrive checked (`aggregation.py`, `masking.py`); what a wrong pointer does in C is not recoverable. The number
of threads is torch's at the time of the call, so that `torch.set_num_threads` governs both. ctypes releases the
interpreter lock during a call.
"""

import ctypes
from ctypes import byref, c_double, c_int64

import torch

from . import reference
from .interface import (
    BLOCK_FAULTS,
    ELEMENT_CODES,
    SIGNATURES,
    SUMMED_ROWS,
    VECTOR_PATHS,
    AttentionArguments,
    ExtremeArguments,
    GatherArguments,
    ProjectionArguments,
)


def _partial_sums(x: torch.Tensor) -> torch.Tensor:
    """Memory for the column sums of x, share by share."""
    return x.new_zeros(-(-x.shape[0] // SUMMED_ROWS), x.shape[1])


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _may_round() -> bool:
    """Whether factors of products may be rounded to bfloat16: `--matmul medium`."""
    return torch.get_float32_matmul_precision() == "medium"


def _rows(tensor: torch.Tensor | None) -> tuple[int | None, int]:
    """Where a matrix begins, and how far apart its rows are."""
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


class Native:
    """The functions of `reference.py`, compiled, on one vector path."""

    def __init__(self, library: ctypes.CDLL, vector_path: str):
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._library = library
        self._path = VECTOR_PATHS.index(vector_path)
        own = library.hg_multiplies() if library.hg_should_multiply() and torch.backends.mkl.is_available() else 0
        #: Whether products of float32 are our own, and those of factors rounded to bfloat16.
        self.multiplies = vector_path != "baseline" and bool(own & 1)
        self.rounds = vector_path == "avx512" and bool(own & 2)

    def supported_paths(self) -> list[str]:
        return [name for code, name in enumerate(VECTOR_PATHS) if self._library.hg_supports(code)]

    def _how(self, dtype) -> tuple[int, int, int]:
        """The vector path, the number of threads and the type's code."""
        return self._path, torch.get_num_threads(), ELEMENT_CODES[dtype]

    def gather(self, y, x, indptr, indices, rows, weight, source_scale, row_scale, accumulate) -> None:
        arguments = GatherArguments(
            x=_pointer(x),
            y=_pointer(y),
            indptr=_pointer(indptr),
            indices=_pointer(indices),
            rows=_pointer(rows),
            weight=_pointer(weight),
            source_scale=_pointer(source_scale),
            row_scale=_pointer(row_scale),
            num_rows=indptr.numel() - 1,
            width=x.shape[1],
            x_stride=x.stride(0),
            y_stride=y.stride(0),
            x_type=ELEMENT_CODES[x.dtype],
            y_type=ELEMENT_CODES[y.dtype],
            accumulate=accumulate,
        )
        if self._library.hg_gather(self._path, torch.get_num_threads(), byref(arguments)):
            raise MemoryError("gather: no memory for the partial sums of rows with very many edges")

    def gather_largest(self, y, count, x, indptr, indices, rows) -> None:
        self._extreme(self._library.hg_gather_largest, y, count, x, indptr, indices, rows)

    def gather_matching(self, y, own, x, indptr, indices, rows) -> None:
        self._extreme(self._library.hg_gather_matching, y, own, x, indptr, indices, rows)

    def _extreme(self, function, y, count, x, indptr, indices, rows) -> None:
        arguments = ExtremeArguments(
            x=_pointer(x),
            y=_pointer(y),
            count=_pointer(count),
            indptr=_pointer(indptr),
            indices=_pointer(indices),
            rows=_pointer(rows),
            num_rows=indptr.numel() - 1,
            width=y.shape[1],
            x_stride=x.stride(0),
            y_stride=y.stride(0),
            count_stride=count.stride(0),
            type=ELEMENT_CODES[y.dtype],
        )
        function(self._path, torch.get_num_threads(), byref(arguments))

    def attend_forward(
        self,
        y,
        running_max,
        denominator,
        a_dst,
        source,
        indptr,
        indices,
        heads,
        slope,
        rows,
        edge_term,
        rule,
        complete,
        bias,
    ) -> None:
        operands = {
            "streamed": source,
            "own": a_dst,
            "sums": y,
            "maximum": running_max,
            "denominator": denominator,
            "edge": edge_term,
        }
        self._attend(
            "hg_attend_forward",
            operands,
            indptr,
            indices,
            heads,
            slope,
            rows,
            rule,
            complete=complete,
            bias=_pointer(bias),
        )

    def attend_backward(
        self,
        gz,
        ga_src,
        ga_dst,
        z_src,
        remote,
        indptr,
        indices,
        heads,
        slope,
        shared,
        rows,
        edge_term,
        g_edge_term,
        rule,
        complete,
        bias,
    ) -> None:
        operands = {
            "streamed": remote,
            "own": z_src,
            "sums": gz,
            "ga_src": ga_src,
            "ga_dst": ga_dst,
            "edge": edge_term,
            "g_edge": g_edge_term,
        }
        self._attend(
            "hg_attend_backward",
            operands,
            indptr,
            indices,
            heads,
            slope,
            rows,
            rule,
            shared=shared,
            complete=complete,
            bias=_pointer(bias),
        )

    def _attend(self, function, operands, indptr, indices, heads, slope, rows, rule, **more) -> None:
        key, threshold, scale, row_ids, column_ids = rule or (0, 0, 1.0, None, None)
        given = {name: tensor for name, tensor in operands.items() if tensor is not None}
        arguments = AttentionArguments(
            indptr=_pointer(indptr),
            indices=_pointer(indices),
            rows=_pointer(rows),
            row_ids=_pointer(row_ids),
            column_ids=_pointer(column_ids),
            num_rows=indptr.numel() - 1,
            heads=heads,
            head_width=operands["sums"].shape[1] // heads,
            slope=slope,
            scale=scale,
            key=key,
            threshold=threshold,
            type=ELEMENT_CODES[operands["sums"].dtype],
            **more,
            **{name + "_term" if "edge" in name else name: _pointer(tensor) for name, tensor in given.items()},
            **{name + "_stride": tensor.stride(0) for name, tensor in given.items()},
        )
        if getattr(self._library, function)(self._path, torch.get_num_threads(), byref(arguments)):
            raise MemoryError("attention: no memory for the partial results of a block")

    def probe(self, x, indices) -> float:
        """Sums all listed rows into registers, for the speed of the reading alone (`jobs/bench/gather.py`)."""
        size = x.element_size()
        return self._library.hg_probe(
            self._path,
            torch.get_num_threads(),
            _pointer(x),
            x.shape[1] * size,
            x.stride(0) * size,
            _pointer(indices),
            indices.numel(),
        )

    def pack(self, out, x, index, scale) -> None:
        self._library.hg_pack(
            self._path,
            torch.get_num_threads(),
            *_rows(out),
            ELEMENT_CODES[out.dtype],
            *_rows(x),
            ELEMENT_CODES[x.dtype],
            _pointer(index),
            index.numel(),
            x.shape[1],
            _pointer(scale),
        )

    def check_block(self, indptr, indices, rows, num_rows, num_sources) -> tuple[str, int]:
        position = c_int64()
        fault = self._library.hg_check_block(
            torch.get_num_threads(),
            _pointer(indptr),
            indptr.numel() - 1,
            _pointer(indices),
            indices.numel(),
            _pointer(rows),
            num_rows,
            num_sources,
            byref(position),
        )
        return BLOCK_FAULTS[fault], position.value

    def philox(self, counters, key) -> torch.Tensor:
        packed = torch.where(counters >= 1 << 31, counters - (1 << 32), counters).to(torch.int32).contiguous()
        words = torch.empty_like(packed)
        self._library.hg_philox(self._path, key, _pointer(packed), packed.shape[0], _pointer(words))
        return words.to(torch.int64) & 0xFFFFFFFF

    def random_words(self, key, ids, columns) -> torch.Tensor:
        words = torch.empty(ids.numel(), columns, dtype=torch.int64)
        self._library.hg_random_words(
            self._path, torch.get_num_threads(), key, _pointer(ids), ids.numel(), columns, _pointer(words)
        )
        return words

    def dropout(self, out, x, ids, key, threshold, scale) -> None:
        self._library.hg_dropout(
            self._path,
            torch.get_num_threads(),
            key,
            threshold,
            scale,
            ELEMENT_CODES[x.dtype],
            *_rows(out),
            *_rows(x),
            _pointer(ids),
            ids.numel(),
            x.shape[1],
        )

    def elu(self, out, x) -> None:
        self._library.hg_elu(
            *self._how(x.dtype),
            *_rows(out),
            *_rows(x),
            *x.shape,
        )

    def elu_gradient(self, out, gy, y, x, dots, bias, sums, scaled) -> None:
        heads = 1 if dots is None else dots.shape[1]
        partial = None if sums is None else _partial_sums(gy)
        self._library.hg_elu_gradient(
            *self._how(gy.dtype),
            *(value for tensor in (out, gy, y, x, dots) for value in _rows(tensor)),
            _pointer(bias),
            _pointer(sums),
            _pointer(partial),
            gy.shape[0],
            heads,
            gy.shape[1] // heads,
            scaled,
        )

    def normalise(self, y, denominator, bias) -> None:
        heads = denominator.shape[1]
        self._library.hg_normalise(
            *self._how(y.dtype),
            *_rows(y),
            *_rows(denominator),
            _pointer(bias),
            y.shape[0],
            heads,
            y.shape[1] // heads,
        )

    def cross_entropy(self, gradient, logits, rows, labels) -> tuple[float, int]:
        total = c_double()
        partial = torch.empty(-(-labels.numel() // SUMMED_ROWS), dtype=torch.float64)
        wrong = self._library.hg_cross_entropy(
            *self._how(logits.dtype),
            byref(total),
            *_rows(gradient),
            *_rows(logits),
            _pointer(rows),
            _pointer(labels),
            _pointer(partial),
            labels.numel(),
            *logits.shape,
        )
        return total.value, wrong

    def multiply(self, out, x, weight, bias, add) -> None:
        rounded = self.factors(weight.dtype)
        if rounded is None:
            return reference.multiply(out, x, weight, bias, add)
        failed = self._library.hg_multiply(
            self._path,
            rounded,
            torch.get_num_threads(),
            *_rows(out),
            x.data_ptr(),
            ELEMENT_CODES[x.dtype],
            x.stride(0),
            _pointer(weight),
            *weight.stride(),
            _pointer(bias),
            *x.shape,
            out.shape[1],
            add,
        )
        if failed:
            raise MemoryError("a product: no memory for its weights")

    def factors(self, dtype) -> bool | None:
        """Of products of this type: whether their factors are rounded now. None where products are torch's."""
        if dtype != torch.float32 or not self.multiplies:
            return None
        return self.rounds and _may_round()

    def project(self, y, x, weight, rule) -> None:
        """rule: (key, threshold, scale, ids) of dropout after ELU, with ids of None if there is no dropout; None:
        neither.
        """
        self._project("hg_project", y, x, weight, rule)

    def project_backward(self, gradient, x, weight, rule, gx, g_weight, dots, bias, sums, y_sums, add, scaled) -> None:
        more = {
            "add": add,
            "gx": _pointer(gx),
            "g_weight": _pointer(g_weight),
            "dots": _pointer(dots),
            "bias": _pointer(bias),
            "scaled": scaled,
            "sums": _pointer(sums),
            "y_sums": _pointer(y_sums),
            "heads": 1 if dots is None else dots.shape[1],
            "gx_stride": _rows(gx)[1],
            "dots_stride": _rows(dots)[1],
        }
        self._project("hg_project_backward", gradient, x, weight, rule, **more)

    def _project(self, function, y, x, weight, rule, **more) -> None:
        key, threshold, scale, ids = rule or (0, 0, 1.0, None)
        arguments = ProjectionArguments(
            x=_pointer(x),
            weight=_pointer(weight),
            y=_pointer(y),
            ids=_pointer(ids),
            rows=x.shape[0],
            depth=x.shape[1],
            width=y.shape[1],
            x_stride=x.stride(0),
            y_stride=y.stride(0),
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
        if getattr(self._library, function)(self._path, torch.get_num_threads(), byref(arguments)):
            raise MemoryError("a projection: no memory to work in")

    def relu_gradient(self, out, gradient, y, scale) -> None:
        self._library.hg_relu_gradient(
            *self._how(y.dtype),
            *_rows(out),
            *_rows(gradient),
            *_rows(y),
            *y.shape,
            scale,
        )

    def bias_gradient(self, sums, gy) -> None:
        partial = _partial_sums(gy)
        self._library.hg_bias_gradient(
            *self._how(gy.dtype),
            _pointer(sums),
            *_rows(gy),
            _pointer(partial),
            *gy.shape,
        )

    def dropout_entries(self, out, data, indptr, ids, columns, key, threshold, scale) -> None:
        self._library.hg_dropout_entries(
            self._path,
            torch.get_num_threads(),
            key,
            threshold,
            scale,
            ELEMENT_CODES[data.dtype],
            _pointer(out),
            _pointer(data),
            _pointer(indptr),
            _pointer(ids),
            _pointer(columns),
            ids.numel(),
        )
