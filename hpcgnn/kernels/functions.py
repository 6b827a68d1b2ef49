"""The common interface of compiled kernels and the reference: functions with checked arguments.

`reference.py` has them as functions of a module, `native.py` as methods. The public functions that call them document
them (`aggregation.py`, `attention.py` and so on).
"""

from typing import Protocol

from torch import Tensor

#: Of attention dropout: key, threshold, scale, ids of rows, ids of columns.
EdgeRule = tuple[int, int, float, Tensor, Tensor]
#: Of dropout after ELU: key, threshold, scale, ids, or None where nothing is dropped.
RowRule = tuple[int, int, float, Tensor | None]


class Kernels(Protocol):
    """The functions that both have."""

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
    ) -> None: ...
    def gather_largest(
        self, y: Tensor, count: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None
    ) -> None: ...
    def gather_matching(
        self, y: Tensor, own: Tensor, x: Tensor, indptr: Tensor, indices: Tensor, rows: Tensor | None
    ) -> None: ...
    def pack(self, out: Tensor, x: Tensor, index: Tensor, scale: Tensor | None) -> None: ...
    def add_rows(
        self, out: Tensor, index: Tensor, x: Tensor, place: Tensor | None, weight: Tensor | None, distinct: bool
    ) -> None: ...
    def check_block(
        self, indptr: Tensor, indices: Tensor, rows: Tensor | None, num_rows: int, num_sources: int
    ) -> tuple[str, int]: ...
    def least_cover(self, indptr: Tensor, indices: Tensor, num_right: int) -> tuple[int, Tensor, Tensor]: ...
    def random_words(self, key: int, ids: Tensor, columns: int) -> Tensor: ...
    def narrow(
        self,
        out: Tensor,
        factors: Tensor,
        x: Tensor,
        ids: Tensor,
        key: int,
        bits: int,
        index: Tensor | None,
        scale: Tensor | None,
    ) -> None: ...
    def widen(self, out: Tensor, narrow: Tensor, factors: Tensor, bits: int) -> None: ...
    def encode(self, codes: Tensor, steps: Tensor, x: Tensor, ids: Tensor, key: int) -> None: ...
    def decode(self, out: Tensor, codes: Tensor, steps: Tensor) -> None: ...
    def dropout(
        self,
        out: Tensor,
        x: Tensor,
        ids: Tensor,
        key: int,
        threshold: int,
        scale: float,
        index: Tensor | None,
        part: Tensor | None,
    ) -> None: ...
    def dropout_entries(
        self,
        out: Tensor,
        data: Tensor,
        indptr: Tensor,
        ids: Tensor,
        columns: Tensor,
        key: int,
        threshold: int,
        scale: float,
    ) -> None: ...
    def attend_forward(
        self,
        y: Tensor,
        running_max: Tensor,
        denominator: Tensor,
        a_dst: Tensor,
        source: Tensor,
        indptr: Tensor,
        indices: Tensor,
        heads: int,
        slope: float,
        rows: Tensor | None,
        edge_term: Tensor | None,
        rule: EdgeRule | None,
        complete: bool,
        bias: Tensor | None,
    ) -> None: ...
    def attend_backward(
        self,
        gz: Tensor,
        ga_src: Tensor,
        ga_dst: Tensor,
        z_src: Tensor,
        remote: Tensor,
        indptr: Tensor,
        indices: Tensor,
        heads: int,
        slope: float,
        shared: bool,
        rows: Tensor | None,
        edge_term: Tensor | None,
        g_edge_term: Tensor | None,
        rule: EdgeRule | None,
        complete: bool,
        bias: Tensor | None,
        returns: Tensor | None,
    ) -> None: ...
    def drop_edges(
        self,
        indptr: Tensor,
        indices: Tensor,
        rows: Tensor | None,
        weight: Tensor | None,
        edge: Tensor | None,
        row_ids: Tensor,
        column_ids: Tensor,
        key: int,
        threshold: int,
        ends: int,
        kept_indptr: Tensor,
        kept_indices: Tensor | None,
        kept_weight: Tensor | None,
        kept_edge: Tensor | None,
        degree: Tensor,
    ) -> int: ...
    def elu(self, out: Tensor, x: Tensor) -> None: ...
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
    ) -> None: ...
    def normalise(self, y: Tensor, denominator: Tensor, bias: Tensor | None) -> None: ...
    def multiply(self, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, add: bool) -> None: ...
    def relu_gradient(self, out: Tensor, gradient: Tensor, y: Tensor, scale: float) -> None: ...
    def bias_gradient(self, sums: Tensor, gy: Tensor) -> None: ...
    def column_sums(self, sums: Tensor, x: Tensor, mean: Tensor | None) -> None: ...
    def norm_gradient_sums(self, sums: Tensor, gy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> None: ...
    def norm_columns(
        self, y: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor
    ) -> None: ...
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
    ) -> None: ...
    def cross_entropy(
        self, gradient: Tensor | None, logits: Tensor, rows: Tensor | None, labels: Tensor
    ) -> tuple[float, int]: ...
