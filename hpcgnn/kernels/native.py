"""The compiled kernels behind the signatures of `reference.py`.

Arguments arrive checked: a wrong pointer in C is not recoverable. The number of threads is torch's at the time of the
call, so that `torch.set_num_threads` governs both. ctypes releases the interpreter lock during a call.
"""

import ctypes
from ctypes import byref, c_double, c_int64

import torch
from torch import Tensor

from .interface import (
    BLOCK_FAULTS,
    ELEMENT_CODES,
    INTERFACE,
    SUMMED_ROWS,
    SUMMED_SHARES,
    VECTOR_PATHS,
    EdgeRule,
    Pointer,
    filled,
    pointer,
    rows_of,
)
from .products_native import NativeProducts


def _partial_sums(x: Tensor) -> Tensor:
    """Memory for the column sums of x, share by share."""
    return x.new_zeros(-(-x.shape[0] // SUMMED_ROWS), x.shape[1])


def _zeros_for_sums(x: Tensor, sums: Tensor) -> Tensor:
    """Zeros for the sums of the shares that are made at a time."""
    shares = min(SUMMED_SHARES, -(-x.shape[0] // SUMMED_ROWS))
    return torch.zeros(shares, sums.shape[0], dtype=torch.float64)


class Native(NativeProducts):
    """The functions of `reference.py`, compiled, on one vector path."""

    def __init__(
        self, library: ctypes.CDLL, vector_path: str, multiplies: bool | None = None, rounds: bool | None = None
    ) -> None:
        """multiplies, rounds: whether products of float32 are our own, and those of factors rounded to bfloat16; None:
        where that is faster. A path or a processor without such products has none, whatever is asked for.
        """
        for name, (result, arguments) in INTERFACE.functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._library = library
        self._path = VECTOR_PATHS[vector_path]
        self._choose_products(multiplies, rounds)

    def supported_paths(self) -> list[str]:
        return [name for name, code in VECTOR_PATHS.items() if self._library.hg_supports(code)]

    def _how(self, *dtype: torch.dtype) -> tuple[int, ...]:
        """The vector path, the number of threads and, of functions for several types, the type's code."""
        return self._path, torch.get_num_threads(), *(ELEMENT_CODES[each] for each in dtype)

    def gather(
        self,
        y: Tensor,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        rows: Tensor | None,
        weight: Tensor | None,
        source_scale: Tensor | None,
        row_scale: Tensor | None,
        accumulate: bool,
    ) -> None:
        tensors = {"x": x, "y": y, "indptr": indptr, "indices": indices, "rows": rows, "weight": weight}
        arguments = filled(
            "hg_gather_args",
            tensors | {"source_scale": source_scale, "row_scale": row_scale},
            num_rows=indptr.numel() - 1,
            width=x.shape[1],
            x_type=ELEMENT_CODES[x.dtype],
            y_type=ELEMENT_CODES[y.dtype],
            accumulate=accumulate,
        )
        if self._library.hg_gather(*self._how(), arguments):
            raise MemoryError("gather: no memory for the partial sums of rows with very many edges")

    def gather_largest(
        self, y: Tensor, count: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None
    ) -> None:
        self._library.hg_gather_largest(*self._how(), self._extreme(y, count, x, indptr, indices, rows))

    def gather_matching(
        self, y: Tensor, own: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None
    ) -> None:
        self._library.hg_gather_matching(*self._how(), self._extreme(y, own, x, indptr, indices, rows))

    def _extreme(
        self, y: Tensor, count: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None
    ) -> Pointer:
        tensors = {"x": x, "y": y, "count": count, "indptr": indptr, "indices": indices, "rows": rows}
        sizes = {"num_rows": indptr.numel() - 1, "width": y.shape[1]}
        return filled("hg_extreme_args", tensors, **sizes, type=ELEMENT_CODES[y.dtype])

    def attend_forward(
        self, y: Tensor, running_max: Tensor, denominator: Tensor, a_dst: Tensor, source: Tensor, indptr: Tensor,
        indices: Tensor, heads: int, slope: float, rows: Tensor | None, edge_term: Tensor | None,
        rule: EdgeRule | None, complete: bool, bias: Tensor | None,
    ) -> None:  # fmt: skip
        tensors: dict[str, Tensor | None] = {
            "streamed": source,
            "own": a_dst,
            "maximum": running_max,
            "denominator": denominator,
        }
        tensors |= {"indices": indices, "rows": rows, "edge_term": edge_term, "bias": bias}
        self.attend("hg_attend_forward", y, indptr, tensors, heads, slope, rule, complete=complete)

    def attend_backward(
        self, gz: Tensor, ga_src: Tensor, ga_dst: Tensor, z_src: Tensor, remote: Tensor, indptr: Tensor,
        indices: Tensor, heads: int, slope: float, shared: bool, rows: Tensor | None, edge_term: Tensor | None,
        g_edge_term: Tensor | None, rule: EdgeRule | None, complete: bool, bias: Tensor | None,
        returns: Tensor | None,
    ) -> None:  # fmt: skip
        tensors: dict[str, Tensor | None] = {"streamed": remote, "own": z_src, "ga_src": ga_src, "ga_dst": ga_dst}
        tensors |= {"returns": returns}
        tensors |= {"indices": indices, "rows": rows, "edge_term": edge_term, "bias": bias, "g_edge_term": g_edge_term}
        self.attend("hg_attend_backward", gz, indptr, tensors, heads, slope, rule, shared=shared, complete=complete)

    def attend(
        self,
        function: str,
        sums: Tensor,
        indptr: Tensor,
        tensors: dict[str, Tensor | None],
        heads: int,
        slope: float,
        rule: EdgeRule | None,
        **more: int,
    ) -> None:
        key, threshold, scale, row_ids, column_ids = rule or (0, 0, 1.0, None, None)
        arguments = filled(
            "hg_attention_args",
            tensors | {"sums": sums, "indptr": indptr, "row_ids": row_ids, "column_ids": column_ids},
            num_rows=indptr.numel() - 1,
            heads=heads,
            slope=slope,
            scale=scale,
            key=key,
            threshold=threshold,
            type=ELEMENT_CODES[sums.dtype],
            **({"head_width": sums.shape[1] // heads} | more),
        )
        if getattr(self._library, function)(*self._how(), arguments):
            raise MemoryError("attention: no memory for the partial results of a block")

    def messages(self, function: str, tensors: dict[str, Tensor | None], **more: int) -> None:
        """function: hg_message_forward or hg_message_backward."""
        y = tensors["y"]
        assert y is not None, "both directions have it"
        arguments = filled("hg_message_args", tensors, type=ELEMENT_CODES[y.dtype], **more)
        if getattr(self._library, function)(*self._how(), arguments):
            raise MemoryError("messages: no memory for the partial results of a block")

    def drop_edges(
        self, indptr: Tensor, indices: Tensor, rows: Tensor | None, weight: Tensor | None, edge: Tensor | None,
        row_ids: Tensor, column_ids: Tensor, key: int, threshold: int, ends: int, kept_indptr: Tensor,
        kept_indices: Tensor | None, kept_weight: Tensor | None, kept_edge: Tensor | None, degree: Tensor,
    ) -> int:  # fmt: skip
        tensors = {"indptr": indptr, "indices": indices, "rows": rows, "weight": weight, "edge": edge}
        tensors |= {"row_ids": row_ids, "column_ids": column_ids, "degree": degree, "kept_indptr": kept_indptr}
        tensors |= {"kept_indices": kept_indices, "kept_weight": kept_weight, "kept_edge": kept_edge}
        arguments = filled(
            "hg_edge_dropout_args",
            tensors,
            num_rows=indptr.numel() - 1,
            capacity=0 if kept_indices is None else kept_indices.numel(),
            key=key,
            threshold=threshold,
            ends=ends,
            weight_bytes=0 if weight is None else weight.element_size(),
            edge_bytes=0 if edge is None else edge.element_size(),
        )
        return self._library.hg_drop_edges(*self._how(), arguments)

    def pack(self, out: Tensor, x: Tensor, index: Tensor, scale: Tensor | None) -> None:
        to, source = (*rows_of(out), ELEMENT_CODES[out.dtype]), (*rows_of(x), ELEMENT_CODES[x.dtype])
        self._library.hg_pack(*self._how(), *to, *source, pointer(index), index.numel(), x.shape[1], pointer(scale))

    def add_rows(
        self, out: Tensor, index: Tensor, x: Tensor, place: Tensor | None, weight: Tensor | None, distinct: bool
    ) -> None:
        of = *rows_of(x), pointer(place), pointer(weight), index.numel(), x.shape[1], distinct
        self._library.hg_add_rows(*self._how(out.dtype), *rows_of(out), pointer(index), *of)

    def check_block(
        self, indptr: Tensor, indices: Tensor, rows: Tensor | None, num_rows: int, num_sources: int
    ) -> tuple[str, int]:
        position = c_int64()
        stored = pointer(indptr), indptr.numel() - 1, pointer(indices), indices.numel(), pointer(rows)
        fault = self._library.hg_check_block(torch.get_num_threads(), *stored, num_rows, num_sources, byref(position))
        return BLOCK_FAULTS[fault], position.value

    def least_cover(self, indptr: Tensor, indices: Tensor, num_right: int) -> tuple[int, Tensor, Tensor]:
        num_left = indptr.numel() - 1
        left, right = torch.empty(num_left, dtype=torch.uint8), torch.empty(num_right, dtype=torch.uint8)
        edges = pointer(indptr), num_left, pointer(indices), num_right
        found = self._library.hg_least_cover(*edges, pointer(left), pointer(right))
        if found < 0:
            raise MemoryError("least_cover: no memory for the matching")
        return found, left, right

    def philox(self, counters: Tensor, key: int) -> Tensor:
        packed = torch.where(counters >= 1 << 31, counters - (1 << 32), counters).to(torch.int32).contiguous()
        words = torch.empty_like(packed)
        self._library.hg_philox(self._path, key, pointer(packed), packed.shape[0], pointer(words))
        return words.to(torch.int64) & 0xFFFFFFFF

    def random_words(self, key: int, ids: Tensor, columns: int) -> Tensor:
        words = torch.empty(ids.numel(), columns, dtype=torch.int64)
        self._library.hg_random_words(*self._how(), key, pointer(ids), ids.numel(), columns, pointer(words))
        return words

    def narrow(
        self,
        out: Tensor,
        factors: Tensor,
        x: Tensor,
        ids: Tensor,
        key: int,
        index: Tensor | None,
        scale: Tensor | None,
    ) -> None:
        to = *rows_of(out), pointer(factors), factors.stride(0) * factors.element_size()
        of = *rows_of(x), pointer(index), pointer(scale), pointer(ids)
        self._library.hg_narrow(*self._how(x.dtype), key, *to, *of, ids.numel(), x.shape[1])

    def widen(self, out: Tensor, narrow: Tensor, factors: Tensor) -> None:
        of = *rows_of(narrow), pointer(factors), factors.stride(0) * factors.element_size()
        self._library.hg_widen(*self._how(out.dtype), *rows_of(out), *of, *out.shape)

    def encode(self, codes: Tensor, steps: Tensor, x: Tensor, ids: Tensor, key: int) -> None:
        of = *rows_of(x), pointer(ids), *x.shape
        self._library.hg_encode(*self._how(x.dtype), key, *rows_of(codes), pointer(steps), *of)

    def decode(self, out: Tensor, codes: Tensor, steps: Tensor) -> None:
        self._library.hg_decode(*self._how(out.dtype), *rows_of(out), *rows_of(codes), pointer(steps), *out.shape)

    def dropout(
        self, out: Tensor, x: Tensor, ids: Tensor, key: int, threshold: int, scale: float, index: Tensor | None,
        part: Tensor | None,
    ) -> None:  # fmt: skip
        rule, of = (key, threshold, scale, ELEMENT_CODES[out.dtype]), (*rows_of(x), ELEMENT_CODES[x.dtype])
        where = pointer(index), pointer(part), pointer(ids)
        self._library.hg_dropout(*self._how(), *rule, *rows_of(out), *of, *where, *out.shape)

    def dropout_entries(
        self, out: Tensor, data: Tensor, indptr: Tensor, ids: Tensor, columns: Tensor, key: int, threshold: int,
        scale: float,
    ) -> None:  # fmt: skip
        rule = key, threshold, scale, ELEMENT_CODES[data.dtype]
        pointers = [pointer(tensor) for tensor in (out, data, indptr, ids, columns)]
        self._library.hg_dropout_entries(*self._how(), *rule, *pointers, ids.numel())

    def elu(self, out: Tensor, x: Tensor) -> None:
        self._library.hg_elu(*self._how(x.dtype), *rows_of(out), *rows_of(x), *x.shape)

    def elu_gradient(
        self,
        out: Tensor,
        gy: Tensor,
        y: Tensor | None,
        x: Tensor | None,
        dots: Tensor | None,
        bias: Tensor | None,
        sums: Tensor | None,
        scaled: bool,
    ) -> None:
        heads = 1 if dots is None else dots.shape[1]
        matrices = [value for tensor in (out, gy, y, x, dots) for value in rows_of(tensor)]
        partial = None if sums is None else _partial_sums(gy)
        vectors = pointer(bias), pointer(sums), pointer(partial)
        sizes = gy.shape[0], heads, gy.shape[1] // heads
        self._library.hg_elu_gradient(*self._how(gy.dtype), *matrices, *vectors, *sizes, scaled)

    def relu_gradient(self, out: Tensor, gradient: Tensor, y: Tensor, scale: float) -> None:
        matrices = *rows_of(out), *rows_of(gradient), *rows_of(y)
        self._library.hg_relu_gradient(*self._how(y.dtype), *matrices, *y.shape, scale)

    def bias_gradient(self, sums: Tensor, gy: Tensor) -> None:
        partial = _partial_sums(gy)
        how = self._how(gy.dtype)
        self._library.hg_bias_gradient(*how, pointer(sums), *rows_of(gy), pointer(partial), *gy.shape)

    def normalise(self, y: Tensor, denominator: Tensor, bias: Tensor | None) -> None:
        heads = denominator.shape[1]
        matrices, sizes = (*rows_of(y), *rows_of(denominator)), (y.shape[0], heads, y.shape[1] // heads)
        self._library.hg_normalise(*self._how(y.dtype), *matrices, pointer(bias), *sizes)

    def cross_entropy(
        self, gradient: Tensor | None, logits: Tensor, rows: Tensor | None, labels: Tensor
    ) -> tuple[float, int]:
        total = c_double()
        partial = torch.empty(-(-labels.numel() // SUMMED_ROWS), dtype=torch.float64)
        matrices, vectors = (*rows_of(gradient), *rows_of(logits)), (pointer(rows), pointer(labels), pointer(partial))
        how, sizes = self._how(logits.dtype), (labels.numel(), *logits.shape)
        wrong = self._library.hg_cross_entropy(*how, byref(total), *matrices, *vectors, *sizes)
        return total.value, wrong

    def column_sums(self, sums: Tensor, x: Tensor, mean: Tensor | None) -> None:
        partial = _zeros_for_sums(x, sums)  # a name holds it until the call is over
        given = pointer(sums), *rows_of(x), pointer(mean), pointer(partial)
        self._library.hg_column_sums(*self._how(x.dtype), *given, *x.shape)

    def norm_gradient_sums(self, sums: Tensor, gy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> None:
        partial = _zeros_for_sums(x, sums)
        given = pointer(sums), *rows_of(gy), *rows_of(x), pointer(mean), pointer(inverse), pointer(partial)
        self._library.hg_norm_gradient_sums(*self._how(x.dtype), *given, *x.shape)

    def norm_columns(self, y: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor) -> None:
        given = *rows_of(y), *rows_of(x), *map(pointer, (mean, inverse, weight, bias))
        self._library.hg_norm_columns(*self._how(x.dtype), *given, *x.shape)

    def norm_columns_gradient(
        self,
        gx: Tensor,
        gy: Tensor,
        x: Tensor,
        mean: Tensor,
        inverse: Tensor,
        mean_gy: Tensor,
        mean_product: Tensor,
        factor: Tensor,
    ) -> None:
        vectors = map(pointer, (mean, inverse, mean_gy, mean_product, factor))
        given = *rows_of(gx), *rows_of(gy), *rows_of(x), *vectors
        self._library.hg_norm_columns_gradient(*self._how(x.dtype), *given, *x.shape)
