"""The graph file's rows of a rank's own nodes and their edges, read in the local order and checked.

Later code relies on the checks: no index out of range reaches a kernel, and no NaN a sum.
"""

from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graph.local import Adjacency
from hpcgnn.graph.sparse_rows import SparseRows, sparse_rows
from hpcgnn.graphfile.field_series import POSITION
from hpcgnn.graphfile.label_files import LABELS
from hpcgnn.graphfile.narrow import read_scales
from hpcgnn.graphfile.ranges import indptr_of, permuted_rows, row_blocks, segments
from hpcgnn.graphfile.schema import Edges
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.options.inputs import Inputs
from hpcgnn.placement.order import LocalOrder

#: uint16 is the bits of bfloat16, which numpy has not.
NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.bfloat16: np.uint16,
    torch.int8: np.int8,
}
# Numbers that are looked at together: what a check takes beside them.
_TILE = 1 << 18
# Edges whose features exist at a time while means are made.
_TILE_EDGES = 1 << 18


def read_indptr(file: GraphFile, group: str, ranges: list[tuple[int, int]]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """(indptr from 0, int64 (n_p + 1,); the spans of entries, list of (start, stop)) of the own slabs of a CSR
    group.
    """
    entries = file.shape(f"{group}/indices")[0]
    found = file.read(f"{group}/indptr", [(start, stop + 1) for start, stop in ranges], np.int64)
    ends = np.cumsum([stop + 1 - start for start, stop in ranges], dtype=np.int64)
    begins = np.concatenate([[0], ends])[:-1]
    wrong = (found < 0) | (found > entries)
    wrong[:-1] |= found[1:] < found[:-1]
    within = found[ends - 1]  # the last of a slab may be more than the first of the next one
    wrong[ends - 1] = (within < 0) | (within > entries)
    if wrong.any():
        start, stop = ranges[np.searchsorted(ends, np.argmax(wrong), side="right")]
        raise FormatError(
            f"{file.path}: {group}/indptr is not monotone within 0..{entries} in rows {start}..{stop}; the file "
            "is corrupted, import the graph again"
        )
    spans = list(zip(found[begins].tolist(), found[ends - 1].tolist(), strict=True))
    if len(spans) == 1:
        found -= spans[0][0]
        return found, spans
    counts = np.delete(np.diff(found), ends[:-1] - 1)  # from one slab to the next
    del found
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr, spans


def read_edges(file: GraphFile, suffix: str, ranges: list[tuple[int, int]], typed: bool) -> Edges:
    """The edges of the own slabs of one direction ('' for in-edges, '_out' for out-edges), with indptr from 0. typed:
    with their types, if the file has any.
    """
    indptr, spans = read_indptr(file, f"topology{suffix}", ranges)
    weight = file.read(f"edges{suffix}/weight", spans, np.float32) if file.meta.weighted else None
    if weight is not None and not np.isfinite(weight).all():
        raise GraphError(
            f"{file.path}: edge weights hold NaN or infinite values; clean them and import the graph again"
        )
    wanted = typed and file.meta.num_edge_types > 0
    kinds = _types(file, f"edges{suffix}/type", spans, file.meta.num_edge_types) if wanted else None
    return Edges(indptr, file.read(f"topology{suffix}/indices", spans), weight, kinds)


def _types(
    file: GraphFile, name: str, ranges: list[tuple[int, int]], count: int, number: np.ndarray | None = None
) -> np.ndarray:
    """int32 types of edges or nodes in the ranges, checked against their number. number: as GraphFile.read has it."""
    kinds = file.read(name, ranges, number=number).astype(np.int32)
    if len(kinds) and not 0 <= kinds.min() <= kinds.max() < count:
        raise FormatError(
            f"{file.path}: {name} leaves the types: expected 0..{count - 1}, got {kinds.min()}..{kinds.max()}; "
            "import the graph again"
        )
    return kinds


def read_original_id(file: GraphFile, ranges: list[tuple[int, int]], number: np.ndarray | None = None) -> torch.Tensor:
    """int64 (n_p,): the ids that randomness is keyed by and predictions are ordered by, each a node of the graph.

    number: as GraphFile.read has it.
    """
    ids = file.read("nodes/original_id", ranges, np.int64, number)
    if len(ids) and not 0 <= ids.min() <= ids.max() < file.meta.num_nodes:
        raise FormatError(
            f"{file.path}: nodes/original_id leave 0..{file.meta.num_nodes - 1}; the file is corrupted, import it again"
        )
    return torch.from_numpy(ids)


def read_dense(
    file: GraphFile, ranges: list[tuple[int, int]], dtype: torch.dtype, number: np.ndarray | None = None
) -> torch.Tensor:
    """Dense features of the nodes in `ranges`, (m, F), in a type of NUMPY. number: as GraphFile.read has it.

    In int8 they are codes where the file has factors of them (graphfile/narrow.py), and numbers in all other types.
    Raises GraphError for NaN and infinity.
    """
    found = file.read("nodes/features", ranges, NUMPY[dtype], number)  # float64 may overflow here
    rows = torch.from_numpy(found.view(np.int16) if dtype == torch.bfloat16 else found).view(dtype)
    _check_finite(file, rows, "node")
    if dtype.is_floating_point and (scales := read_scales(file)) is not None:
        rows.mul_(torch.from_numpy(scales))
    return rows


def _check_finite(file: GraphFile, values: torch.Tensor, owner: str) -> None:
    """Raise GraphError for features `values` with NaN or infinity. owner: a node or an edge."""
    tile = max(1, _TILE // max(1, values[:1].numel()))
    if not all(bool(values[first : first + tile].isfinite().all()) for first in range(0, len(values), tile)):
        raise GraphError(
            f"{file.path}: {owner} features hold NaN or infinite values; clean them and import the graph again"
        )


@dataclass(frozen=True)
class OwnRows:
    """The rows of own nodes in the file.

    Attributes:
        ranges: [(start, stop)] of the own nodes in the file.
        order: their local order.
        inputs: the kinds of input columns.
        dtype: in which features are held.
    """

    file: GraphFile
    ranges: list[tuple[int, int]]
    order: LocalOrder
    inputs: Inputs
    dtype: torch.dtype

    @property
    def columns(self) -> int:
        """Of dense features of the file that stand alone; 0 for others."""
        alone = self.inputs == Inputs() and not self.file.meta.sparse_features
        return self.file.meta.num_features if alone else 0

    def node_type(self) -> torch.Tensor | None:
        """int32 (n_p,), or None."""
        count = self.file.meta.num_node_types
        if count == 0:
            return None
        return torch.from_numpy(_types(self.file, "nodes/type", self.ranges, count, self.order.number))

    def labels(self, labelled: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """(labels as a rank has them (graphfile/label_files.py), split uint8 (n_p,)). labelled: whether the file has
        labels of its task.
        """
        file, kind = self.file, LABELS[self.file.meta.task]
        split = torch.from_numpy(file.read("nodes/split", self.ranges, np.uint8, self.order.number))
        if not labelled:
            return torch.from_numpy(kind.unlabelled(len(split), file.meta.num_classes)), split
        labels = file.read("nodes/labels", self.ranges, number=self.order.number)
        if fault := kind.fault(labels, file.meta.num_classes):
            raise GraphError(f"{file.path}: {fault}; import the graph again with the right labels")
        return torch.from_numpy(kind.loaded(labels)), split

    def original_id(self) -> torch.Tensor:
        """See `read_original_id`."""
        return read_original_id(self.file, self.ranges, self.order.number)

    def position(self, dtype: torch.dtype) -> torch.Tensor | None:
        """(n_p, D) of a type that is computed with, or None. Raises GraphError for NaN and infinity."""
        if not self.file.meta.num_dimensions:
            return None
        found = torch.from_numpy(self.file.read(POSITION, self.ranges, NUMPY[dtype], self.order.number))
        if not bool(found.isfinite().all()):
            raise GraphError(
                f"{self.file.path}: {POSITION} has NaN or infinite numbers; mend the positions and add them again"
            )
        return found

    def features(self, inward: Adjacency, remaining: np.ndarray | None = None) -> torch.Tensor | SparseRows:
        """The input columns that do not change: (n_p, F). Sparse features of the file stand by themselves.

        inward: the in-edges of own nodes, added self loops included. remaining: as of `edge_features`.
        """
        if self.inputs.file and self.file.meta.sparse_features:
            assert self.inputs == Inputs(), "refused where the options were read"
            return self._sparse()
        dense = self.inputs.file and self.file.meta.num_features > 0
        if dense and self.inputs == Inputs():
            return read_dense(self.file, self.ranges, self.dtype, self.order.number)
        counts = inward.edge_counts
        parts = [torch.empty(len(counts), 0, dtype=self.dtype)]
        if dense:
            parts.append(read_dense(self.file, self.ranges, self.dtype, self.order.number))
        if self.inputs.ones:
            parts.append(torch.ones(len(counts), 1, dtype=self.dtype))
        if self.inputs.degree:
            parts.append(torch.log1p(counts.double()).to(self.dtype)[:, None])
        if self.inputs.edges:
            means = torch.from_numpy(self._edge_means(remaining)).to(self.dtype)
            _check_finite(self.file, means, "edge")
            parts.append(means)
        return torch.cat(parts, 1)

    def _sparse(self) -> SparseRows:
        file, width = self.file, self.file.meta.num_features
        indptr, spans = read_indptr(file, "nodes/features_csr", self.ranges)
        columns = file.read("nodes/features_csr/indices", spans).astype(np.int32)
        if len(columns) and not 0 <= columns.min() <= columns.max() < width:
            raise FormatError(f"{file.path}: nodes/features_csr/indices leave 0..{width - 1}; the file is corrupted")
        data = file.read("nodes/features_csr/data", spans, np.float32)
        _check_finite(file, torch.from_numpy(data), "node")
        if self.order.number is not None:
            indptr, entries = permuted_rows(indptr, self.order.taken())
            columns, data = columns[entries], data[entries]
        return sparse_rows(indptr, columns, data, width, self.dtype)

    def _edge_means(self, remaining: np.ndarray | None) -> np.ndarray:
        """float64 (n_p, F): the means of the features of each own node's in-edges; zeros without any.

        Added self loops have no part in them. Edges are read some rows at a time.
        """
        indptr, spans = read_indptr(self.file, "topology", self.ranges)
        place = np.arange(len(indptr) - 1) if self.order.number is None else self.order.number
        given = indptr if remaining is None else indptr_of(indptr, remaining)
        means, row = np.zeros((len(indptr) - 1, self.file.meta.num_edge_features)), 0
        for (start, stop), (begin, _) in zip(self.ranges, spans, strict=True):
            here = slice(row, row + stop - start + 1)
            slab, wanted = indptr[here], given[here]
            for first, last in row_blocks(slab, _TILE_EDGES):
                low, high = (int(begin + slab[at] - slab[0]) for at in (first, last))
                rows = self.file.read("edges/features", [(low, high)], np.float64)
                if remaining is not None:
                    rows = rows[remaining[slab[first] : slab[last]]]
                counts = np.diff(wanted[first : last + 1])
                some = counts > 0
                if len(rows):
                    sums = np.add.reduceat(rows, (np.cumsum(counts) - counts)[some])
                    means[place[row + first : row + last][some]] = sums / counts[some, None]
            row += stop - start
        return means

    def edge_features(self, inward: Adjacency, dtype: torch.dtype, remaining: np.ndarray | None = None) -> torch.Tensor:
        """(E_p, F) of the edges of an Adjacency, in the order of its EdgeList. Only the result is as long as all
        edges times their features.

        A rank numbers its edges by own row in the local order, an added self loop last. So a row is read to its edge's
        place there. An added self loop gets the mean of its node's other edges (PyG's fill_value of attention layers),
        zeros if there are none.

        remaining: bool (E,), the edges of the file that the Adjacency has, None for all.
        """
        indptr, spans = read_indptr(self.file, "topology", self.ranges)
        if remaining is not None:
            indptr = indptr_of(indptr, remaining)
        counts, given = inward.edge_counts.numpy(), np.diff(indptr)
        stops, total = np.cumsum(counts), int(counts.sum())
        place = np.arange(len(given)) if self.order.number is None else self.order.number
        lonely = np.ones(len(given), bool)
        lonely[place] = counts[place] > given
        number, taken_out = segments((stops - counts)[place], given), 0
        if remaining is not None:  # the others are put behind these
            taken_out = len(remaining) - len(number)
            everywhere = np.empty(len(remaining), np.int64)
            everywhere[remaining], everywhere[~remaining] = number, total + np.arange(taken_out)
            number = everywhere
        features = self.file.read("edges/features", spans, NUMPY[dtype], number, total + taken_out)
        features.resize((total, features.shape[1]), refcheck=False)  # which gives back their memory
        if lonely.any():
            _fill_loops(features, stops, lonely)
        _check_finite(self.file, torch.from_numpy(features), "edge")
        return torch.from_numpy(features)


def _fill_loops(features: np.ndarray, stops: np.ndarray, lonely: np.ndarray) -> None:
    """Give the last edge of each row that is lonely the mean of the others. stops: int64 (n_p,), where rows end. All
    rows have an edge, for each has a loop.
    """
    features[stops[lonely] - 1] = 0
    indptr = np.concatenate([[0], stops])
    for first, last in row_blocks(indptr):
        filled = np.flatnonzero(lonely[first:last])
        starts = indptr[first:last]
        sums = np.add.reduceat(features[starts[0] : stops[last - 1]], starts - starts[0], dtype=np.float64)
        others = np.maximum(np.diff(indptr[first : last + 1]) - 1, 1)
        features[stops[first:last][filled] - 1] = sums[filled] / others[filled, None]
