"""The compiled kernels behind the signatures of `reference.py`: ctypes declarations, and for products whose they are.

Arguments arrive checked (`aggregation.py`, `masking.py`); what a wrong pointer does in C is not recoverable. The number
of threads is torch's at the time of the call, so that `torch.set_num_threads` governs both. ctypes releases the
interpreter lock during a call.
"""

import ctypes
from ctypes import POINTER, byref, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

import torch

from . import reference

#: Codes of the element types in C are positions in this list; likewise for paths (narrowest first) and faults.
ELEMENT_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
VECTOR_PATHS = ("baseline", "avx2", "avx512")
SUMMED_ROWS = 512  # HG_SHARE of native/between.c
BLOCK_FAULTS = ("", "indptr_start", "indptr_order", "indptr_end", "row_range", "row_order", "index_range")


class GatherArguments(ctypes.Structure):
    """hg_gather_args of native/hg.h, field by field."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("indptr", c_void_p),
        ("indices", c_void_p),
        ("rows", c_void_p),
        ("weight", c_void_p),
        ("source_scale", c_void_p),
        ("row_scale", c_void_p),
        ("num_rows", c_int64),
        ("width", c_int64),
        ("x_stride", c_int64),
        ("y_stride", c_int64),
        ("x_type", c_int32),
        ("y_type", c_int32),
        ("accumulate", c_int32),
    ]


class ExtremeArguments(ctypes.Structure):
    """hg_extreme_args of native/hg.h, field by field."""

    _fields_ = [
        (name, kind)
        for kind, names in (
            (c_void_p, "x y count indptr indices rows"),
            (c_int64, "num_rows width x_stride y_stride count_stride"),
            (c_int32, "type"),
        )
        for name in names.split()
    ]


class AttentionArguments(ctypes.Structure):
    """hg_attention_args of native/attention.h, field by field."""

    _fields_ = [
        (name, kind)
        for kind, names in (
            (c_void_p, "indptr indices rows"),
            (c_void_p, "streamed own sums maximum denominator ga_src ga_dst edge_term g_edge_term row_ids column_ids bias"),
            (c_int64, "num_rows heads head_width streamed_stride own_stride sums_stride maximum_stride"),
            (c_int64, "denominator_stride ga_src_stride ga_dst_stride edge_stride g_edge_stride"),
            (c_double, "slope scale"),
            (c_uint64, "key"),
            (c_uint32, "threshold"),
            (c_int32, "shared complete type"),
        )
        for name in names.split()
    ]


_SIGNATURES = {
    "hg_supports": (c_int, [c_int]),
    "hg_gather": (c_int, [c_int, c_int, POINTER(GatherArguments)]),
    "hg_gather_largest": (None, [c_int, c_int, POINTER(ExtremeArguments)]),
    "hg_gather_matching": (None, [c_int, c_int, POINTER(ExtremeArguments)]),
    "hg_attend_forward": (c_int, [c_int, c_int, POINTER(AttentionArguments)]),
    "hg_attend_backward": (c_int, [c_int, c_int, POINTER(AttentionArguments)]),
    "hg_probe": (c_double, [c_int, c_int, c_void_p, c_int64, c_int64, c_void_p, c_int64]),
    "hg_pack": (
        None,
        [c_int, c_int, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int64, c_void_p],
    ),
    "hg_philox": (None, [c_int, c_uint64, c_void_p, c_int64, c_void_p]),
    "hg_random_words": (None, [c_int, c_int, c_uint64, c_void_p, c_int64, c_int64, c_void_p]),
    "hg_dropout": (
        None,
        [c_int, c_int, c_uint64, c_uint32, c_double, c_int]
        + [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64],
    ),
    "hg_dropout_entries": (
        None,
        [c_int, c_int, c_uint64, c_uint32, c_double, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64],
    ),
    "hg_elu": (None, [c_int, c_int, c_int, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64]),
    "hg_elu_gradient": (None, [c_int] * 3 + [c_void_p, c_int64] * 5 + [c_void_p] * 3 + [c_int64] * 3),
    "hg_bias_gradient": (None, [c_int] * 3 + [c_void_p, c_void_p, c_int64, c_void_p] + [c_int64] * 2),
    "hg_multiplies": (c_int, []),
    "hg_multiply": (c_int, [c_int] + [c_void_p, c_int64] * 2 + [c_void_p, c_int64, c_int64, c_void_p] + [c_int64] * 3 + [c_int]),
    "hg_normalise": (None, [c_int, c_int, c_int] + [c_void_p, c_int64] * 2 + [c_void_p] + [c_int64] * 3),
    "hg_check_block": (
        c_int,
        [c_int, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64, POINTER(c_int64)],
    ),
}


def _partial_sums(x: torch.Tensor) -> torch.Tensor:
    """Memory for the column sums of x, share by share."""
    return x.new_zeros(-(-x.shape[0] // SUMMED_ROWS), x.shape[1])


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _rounds_factors() -> bool:
    """Whether torch would multiply with factors rounded to bfloat16: `--matmul medium`, on a processor that can."""
    return torch.get_float32_matmul_precision() != "highest" and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _rows(tensor: torch.Tensor | None) -> tuple[int | None, int]:
    """Where a matrix begins, and how far apart its rows are."""
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


class Native:
    """The functions of `reference.py`, compiled, on one vector path."""

    def __init__(self, library: ctypes.CDLL, vector_path: str):
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._library = library
        self._path = VECTOR_PATHS.index(vector_path)
        self.multiplies = vector_path == "avx2" and torch.backends.mkl.is_available() and bool(library.hg_multiplies())

    def supported_paths(self) -> list[str]:
        return [name for code, name in enumerate(VECTOR_PATHS) if self._library.hg_supports(code)]

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
        self, y, running_max, denominator, a_dst, source, indptr, indices, heads, slope, rows, edge_term, rule,
        complete, bias,
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
            "hg_attend_forward", operands, indptr, indices, heads, slope, rows, rule, complete=complete, bias=_pointer(bias)
        )

    def attend_backward(
        self, gz, ga_src, ga_dst, z_src, remote, indptr, indices, heads, slope, shared, rows, edge_term, g_edge_term,
        rule, complete,
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
            "hg_attend_backward", operands, indptr, indices, heads, slope, rows, rule, shared=shared, complete=complete
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
            self._path,
            torch.get_num_threads(),
            ELEMENT_CODES[x.dtype],
            *_rows(out),
            *_rows(x),
            *x.shape,
        )

    def elu_gradient(self, out, gy, y, x, dots, bias, sums) -> None:
        heads = 1 if dots is None else dots.shape[1]
        partial = None if sums is None else _partial_sums(gy)
        self._library.hg_elu_gradient(
            self._path,
            torch.get_num_threads(),
            ELEMENT_CODES[gy.dtype],
            *(value for tensor in (out, gy, y, x, dots) for value in _rows(tensor)),
            _pointer(bias),
            _pointer(sums),
            _pointer(partial),
            gy.shape[0],
            heads,
            gy.shape[1] // heads,
        )

    def normalise(self, y, denominator, bias) -> None:
        heads = denominator.shape[1]
        self._library.hg_normalise(
            self._path,
            torch.get_num_threads(),
            ELEMENT_CODES[y.dtype],
            *_rows(y),
            *_rows(denominator),
            _pointer(bias),
            y.shape[0],
            heads,
            y.shape[1] // heads,
        )

    def multiply(self, out, x, weight, bias, add) -> None:
        if not self.multiplies or x.dtype != torch.float32 or _rounds_factors():
            return reference.multiply(out, x, weight, bias, add)
        failed = self._library.hg_multiply(
            torch.get_num_threads(),
            *_rows(out),
            *_rows(x),
            _pointer(weight),
            *weight.stride(),
            _pointer(bias),
            *x.shape,
            out.shape[1],
            add,
        )
        if failed:
            raise MemoryError("a product: no memory for its weights")

    def bias_gradient(self, sums, gy) -> None:
        partial = _partial_sums(gy)
        self._library.hg_bias_gradient(
            self._path,
            torch.get_num_threads(),
            ELEMENT_CODES[gy.dtype],
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
