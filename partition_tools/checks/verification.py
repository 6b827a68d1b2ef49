"""All promises of the format, checked against the bytes of a file.

Checksums find bytes that changed after writing. The other checks find files that were wrong when written (by another
program, an older version, or a fault in this one). A check is skipped if an earlier one that it needs has failed. So
the report names causes, not consequences.
"""

import dataclasses
from collections.abc import Callable, Collection

import numpy as np

from hpcgnn.errors import HpcgnnError
from hpcgnn.graphfile.given_links import given_shapes
from hpcgnn.graphfile.labels import LABELS, MULTILABEL, REGRESSION
from hpcgnn.graphfile.narrow import SCALES, are_scales
from hpcgnn.graphfile.own_ids import doubled_ids, kind_of_ids
from hpcgnn.graphfile.schema import ID_NUMBERS, ID_OFFSETS, ID_TEXT, Edges
from hpcgnn.graphfile.storage import SLAB_ROWS, SPLITS, GraphFile
from partition_tools.canonical.rows import numbered
from partition_tools.checks.verify_links import check_links
from partition_tools.graph.compute_nodes import node_attributes
from partition_tools.graph.edges import count_self_loops, rows, transpose
from partition_tools.graph.loading import StoredRows, load_edges
from partition_tools.graph.quality import cluster_graph, partition_quality
from partition_tools.workspace.progress import Reporter

RANK_FIGURES = "edge_cut", "halo_rows_total", "halo_rows_max"
NODE_FIGURES = "compute_node_edge_cut", "compute_node_halo_rows_total", "compute_node_halo_rows_max"


@dataclasses.dataclass
class Check:
    """One promise of the format. ok: None where it could not be checked. detail: the finding, or a remark."""

    name: str
    ok: bool | None
    detail: str = ""


class Verification:
    """The checks of one open graph file; see `run`."""

    def __init__(self, file: GraphFile, reporter: Reporter) -> None:
        self.file, self.meta, self.reporter = file, file.meta, reporter
        self.checks: list[Check] = []
        self.bad: set[str] = set()

    def check(self, name: str, needs: Collection[str], test: Callable[[], str]) -> None:
        """Record test() -> '' or the fault, unless one of `needs` (datasets or checks) is bad."""
        if self.bad & set(needs):
            self.checks.append(Check(name, None, f"needs {', '.join(sorted(self.bad & set(needs)))}"))
            self.bad.add(name)
            return
        try:
            fault = test()
        except HpcgnnError as error:
            fault = str(error)
        self.checks.append(Check(name, not fault, fault or ""))
        if fault:
            self.bad.add(name)

    def _remark(self, name: str, said: str) -> None:
        """Record what is no fault of the file."""
        self.checks.append(Check(name, True, said))

    def run(self) -> list[Check]:
        """All checks, in the order in which they build on one another."""
        expected = self._expected()
        with self.reporter.bar(len(expected), f"reading {self.file.path}", "datasets") as progress:
            for name, shape in expected.items():
                self.check(name, (), lambda: self._readable(name, shape))
                progress(1)
        for suffix in ("", "_out")[: 1 if self.meta.undirected else 2]:
            self._edges(suffix)
        self._transposes()
        self._nodes()
        check_links(self.file, self.check, self._remark)
        self._types()
        self._clusters()
        return self.checks

    def _expected(self) -> dict[str, tuple[int, ...] | None]:
        """{dataset: shape, None for a length that another dataset decides}."""
        meta = self.meta
        n, edges, dense = meta.num_nodes, meta.num_edges, meta.num_features and not meta.sparse_features
        expected: dict[str, tuple[int, ...] | None] = {}
        for suffix in ("", "_out")[: 1 if meta.undirected else 2]:
            expected |= {f"topology{suffix}/indptr": (n + 1,), f"topology{suffix}/indices": (edges,)}
            expected |= {f"edges{suffix}/weight": (edges,)} if meta.weighted else {}
            expected |= {f"edges{suffix}/type": (edges,)} if meta.typed else {}
        # {dataset: (its shape, whether the attributes of the file say that it is there)}
        others: dict[str, tuple[tuple[int, ...] | None, object]] = {
            "edges/features": ((edges, meta.num_edge_features), meta.num_edge_features),
            "nodes/features": ((n, meta.num_features), dense),
            SCALES: ((meta.num_features,), False),
            "nodes/features_csr/indptr": ((n + 1,), meta.sparse_features),
            "nodes/features_csr/indices": (None, meta.sparse_features),
            "nodes/features_csr/data": (None, meta.sparse_features),
            "nodes/type": ((n,), meta.num_node_types),
            "nodes/labels": (LABELS[meta.task].shape(n, meta.num_classes), True),
            "nodes/split": ((n,), True),
            "nodes/original_id": ((n,), True),
            "clusters/offsets": ((meta.num_clusters + 1,), True),
            ID_NUMBERS: ((n,), False),
            ID_OFFSETS: ((n + 1,), False),
            ID_TEXT: (None, ID_OFFSETS in self.file),
        }
        expected |= {name: shape for name, (shape, stated) in others.items() if stated or name in self.file}
        expected |= given_shapes(self.file)
        if "clusters/graph" in self.file:
            parts = [f"clusters/graph/{part}" for part in ("indptr", "indices", "weight")]
            expected |= dict(zip(parts, ((meta.num_clusters + 1,), None, None), strict=True))
        for name, counts in self.file.partitionings().items():
            expected |= {f"partitionings/{name}/{count}": (meta.num_clusters,) for count in counts}
        return expected

    def _readable(self, name: str, shape: tuple[int, ...] | None) -> str:
        found = self.file.shape(name)
        if shape is not None and found != shape:
            return f"has shape {found}, expected {shape}"
        for start in range(0, found[0], SLAB_ROWS * 16):
            self.file.read(name, [(start, min(start + SLAB_ROWS * 16, found[0]))])
        return ""

    def _edges(self, suffix: str) -> None:
        read, n = self.file.read, self.meta.num_nodes
        indptr, indices = f"topology{suffix}/indptr", f"topology{suffix}/indices"
        pointers, ends, order = f"row pointers{suffix}", f"index range{suffix}", f"sorted rows{suffix}"
        self.check(pointers, (indptr, indices), lambda: _pointers(read(indptr), self.meta.num_edges))
        self.check(ends, (indices,), lambda: _range(read(indices), 0, n, "edge"))
        self.check(order, (indices, indptr, pointers, ends), lambda: _sorted_rows(load_edges(self.file, suffix)))
        if self.meta.weighted:
            self.check(
                f"finite weights{suffix}",
                (f"edges{suffix}/weight",),
                lambda: _first(~np.isfinite(read(f"edges{suffix}/weight")), "edge {} has a weight that is not finite"),
            )
        if self.meta.typed:
            self.check(
                f"edge types{suffix}",
                (f"edges{suffix}/type",),
                lambda: _range(read(f"edges{suffix}/type"), 0, self.meta.num_edge_types, "edge"),
            )
        if not suffix:
            if "edges/features" in self.file:
                self.check("finite edge features", ("edges/features",), lambda: self._finite("edges/features", "edge"))

            def loops() -> str:
                found = count_self_loops(load_edges(self.file))
                return "" if found == self.meta.num_self_loops else f"found {found}, stated {self.meta.num_self_loops}"

            self.check("self loops", (indices, indptr, pointers), loops)

    def _transposes(self) -> None:
        needs = [
            name
            for suffix in ("", "_out")
            for name in (
                f"topology{suffix}/indptr",
                f"topology{suffix}/indices",
                f"edges{suffix}/weight",
                f"edges{suffix}/type",
                f"row pointers{suffix}",
                f"index range{suffix}",
                f"sorted rows{suffix}",
            )
        ]

        def test() -> str:
            edges = load_edges(self.file)
            other = edges if self.meta.undirected else load_edges(self.file, "_out")
            turned = transpose(edges)
            if not np.array_equal(turned.indptr, other.indptr):
                node = int(np.argmax(np.diff(turned.indptr) != np.diff(other.indptr)))
                return f"node {node} does not have as many edges one way as the other"
            for name, what in (("indices", "ends"), ("weight", "weights"), ("type", "types")):
                one, two = getattr(turned, name), getattr(other, name)
                if one is not None and not np.array_equal(one, two):
                    return f"the {what} differ, first at node {rows(other)[np.argmax(one != two)]}"
            return ""

        self.check("symmetric as stated" if self.meta.undirected else "topology_out is the transpose", needs, test)

    def _nodes(self) -> None:
        read, meta, n = self.file.read, self.meta, self.meta.num_nodes
        if meta.sparse_features:
            base = "nodes/features_csr"
            parts = [f"{base}/{name}" for name in ("indptr", "indices", "data")]
            self.check(
                "sparse features",
                parts,
                lambda: (
                    _pointers(read(parts[0]), self.file.shape(parts[1])[0])
                    or _range(read(parts[1]), 0, meta.num_features, "entry")
                    or (
                        ""
                        if self.file.shape(parts[1]) == self.file.shape(parts[2])
                        else "indices and data differ in length"
                    )
                    or _first(~np.isfinite(read(parts[2])), "entry {} is not finite")
                ),
            )
        elif "nodes/features" in self.file:
            self.check("finite features", ("nodes/features",), lambda: self._finite("nodes/features", "node"))
            if SCALES in self.file:
                self.check(
                    "factors of features",
                    (SCALES,),
                    lambda: _first(~are_scales(read(SCALES)), "that of column {} is no power of two"),
                )
        self.check("labels in classes", ("nodes/labels",), self._labels)
        self.check("split values", ("nodes/split",), lambda: _range(read("nodes/split"), 0, len(SPLITS) + 1, "node"))

        def labelled() -> str:
            labels, split = LABELS[meta.task].labelled(read("nodes/labels")), read("nodes/split")
            return _first((split > 0) & ~labels, "node {} is in a split but has no label")

        self.check("split nodes have labels", ("nodes/split", "nodes/labels"), labelled)
        labels_alone = not self.meta.negatives and "nodes/split" not in self.bad
        if labels_alone and not (read("nodes/split") == SPLITS["train"]).any():
            self._remark("training split", "empty; training will refuse this graph")

        def permutation() -> str:
            ids, twice = read("nodes/original_id"), "id {} is not there exactly once"
            return _range(ids, 0, n, "node") or _first(np.bincount(ids, minlength=n) != 1, twice)

        self.check("original_id is a permutation", ("nodes/original_id",), permutation)
        if kind_of_ids(self.file):
            self.check("ids are distinct", (ID_NUMBERS, ID_OFFSETS, ID_TEXT), lambda: doubled_ids(self.file))

    def _labels(self) -> str:
        labels, meta = self.file.read("nodes/labels"), self.meta
        if meta.task == REGRESSION:
            return LABELS[REGRESSION].fault(labels, meta.num_classes)
        return _range(labels.reshape(-1), *((0, 2) if meta.task == MULTILABEL else (-1, meta.num_classes)), "label")

    def _types(self) -> None:
        """Checks of types, except the range of edge types, which is checked with the edges."""
        read, meta = self.file.read, self.meta
        if meta.num_node_types or "nodes/type" in self.file:
            self.check(
                "node types", ("nodes/type",), lambda: _range(read("nodes/type"), 0, meta.num_node_types, "node")
            )

        def agree() -> str:
            if meta.num_edge_types and not meta.typed:
                return f"num_edge_types is {meta.num_edge_types}, but the edges are not typed"
            for what, count in (("nodes", meta.num_node_types), ("edges", meta.num_edge_types)):
                names = meta.type_names.get(what, ())
                if names and len(names) != count:
                    return f"{count} types of {what} but {len(names)} names of them"
            names = meta.type_names.get("classes", ())
            if names and len(names) != meta.num_classes:
                return f"{meta.num_classes} classes but {len(names)} names of them"
            return ""

        if meta.typed or meta.num_edge_types or meta.num_node_types or meta.type_names:
            self.check("numbers and names of types", (), agree)

    def _finite(self, name: str, what: str) -> str:
        for start, slab in numbered(StoredRows(self.file, name)):
            finite = np.isfinite(slab).all(axis=1)
            if not finite.all():
                return f"{what} {start + int(np.argmin(finite))} has a feature that is NaN or infinite"
        return ""

    def _clusters(self) -> None:
        file, meta = self.file, self.meta
        self.check(
            "cluster offsets", ("clusters/offsets",), lambda: _pointers(file.read("clusters/offsets"), meta.num_nodes)
        )
        needs = (
            "clusters/offsets",
            "cluster offsets",
            "topology/indptr",
            "topology/indices",
            "row pointers",
            "index range",
        )
        if "clusters/graph" in file:
            parts = [f"clusters/graph/{name}" for name in ("indptr", "indices", "weight")]

            def graph() -> str:
                edges, sizes = load_edges(file), np.diff(file.read("clusters/offsets"))
                found = cluster_graph(np.repeat(np.arange(len(sizes)), sizes), len(sizes), edges, not meta.undirected)
                same = all(
                    array is not None and np.array_equal(file.read(part), array)
                    for part, array in zip(parts, (found.indptr, found.indices, found.data), strict=True)
                )
                return "" if same else "does not agree with the edges"

            self.check("cluster graph", (*needs, *parts), graph)
        for name, counts in file.partitionings().items():
            for count in counts:
                path = f"partitionings/{name}/{count}"
                self.check(f"map {name}/{count}", (path, *needs), lambda: self._map(name, count))

    def _map(self, name: str, count: int) -> str:
        parts, stored = self.file.cluster_map(name, count)
        unused = count - len(np.unique(parts))
        if unused:
            return f"{unused} of {count} ranks have no cluster"
        quality = partition_quality(
            parts, count, self.file.read("clusters/offsets"), load_edges(self.file)
        ).attributes()
        per_node = int(stored.get("ranks_per_node", 1))
        if per_node < 1:
            return f"ranks_per_node is {per_node}, expected at least 1"
        if per_node > 1:
            offsets = self.file.read("clusters/offsets")
            quality |= node_attributes(parts, count, per_node, offsets, load_edges(self.file))
        wrong = [key for key in (*RANK_FIGURES, *NODE_FIGURES) if key in stored and stored[key] != quality[key]]
        return "".join(f"{key} is stated as {stored[key]} but is {quality[key]}" for key in wrong[:1])


def _pointers(pointers: np.ndarray, last: int) -> str:
    if len(pointers) == 0 or pointers[0] != 0:
        return "does not begin with 0"
    if (np.diff(pointers) < 0).any():
        return f"falls at {int(np.argmax(np.diff(pointers) < 0))}"
    return "" if pointers[-1] == last else f"ends with {pointers[-1]}, expected {last}"


def _range(values: np.ndarray, low: int, high: int, what: str) -> str:
    return _first((values < low) | (values >= high), f"{what} {{}} has a value outside {low}..{high - 1}")


def _first(wrong: np.ndarray, message: str) -> str:
    return message.format(int(np.argmax(wrong))) if wrong.any() else ""


def _sorted_rows(edges: Edges) -> str:
    if len(edges.indices) < 2:
        return ""
    row = rows(edges)
    inside = row[1:] == row[:-1]
    falls = edges.indices[1:] < edges.indices[:-1]
    tie = edges.indices[1:] == edges.indices[:-1]
    for array in (edges.type, edges.weight):
        if array is not None:
            falls |= tie & (array[1:] < array[:-1])
            tie = tie & (array[1:] == array[:-1])
    wrong = inside & falls
    return f"the edges of node {row[int(np.argmax(wrong))]} are not in order" if wrong.any() else ""
