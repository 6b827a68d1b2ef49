"""Small odd graphs, and a graph file seen through plain Python: the oracle shares no code with the tested program."""

import gzip
import tempfile
from collections import Counter
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical.canonical import ImportOptions, canonical
from partition_tools.generators import GENERATORS
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch


def plenty(reporter=None):
    """A `Scratch` with memory for everything, in a folder that goes with the process."""
    return Scratch(tempfile.mkdtemp(dir=_FOLDER.name), 1 << 30, reporter or Reporter())


_FOLDER = tempfile.TemporaryDirectory(prefix="hpcgnn-tests-")


def graph_data(raw, reporter=None, **options):
    """`GraphData` of a `RawGraph`."""
    return canonical(raw, ImportOptions(**options), plenty(reporter))


def drawn(model, spec):
    """The `RawGraph` of a generator."""
    return GENERATORS[model].generate(spec, plenty())


def write_csv(path, rows):
    """A table as the downloads of OGB's data sets have it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def odd_graph(n=60, edges=240, seed=0, symmetric=False):
    """src, dst int64 (E,) with self loops, parallel edges, an isolated last node and a hub."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, n - 1, edges), random.integers(0, n - 1, edges)
    src[:20], dst[20:24] = 3, src[20:24]
    src, dst = np.concatenate([src, src[:15]]), np.concatenate([dst, dst[:15]])
    if symmetric:
        keep = src != dst
        src, dst = np.concatenate([src, dst[keep]]), np.concatenate([dst, src[keep]])
    return src, dst


def node_data(n, classes=4, width=5, seed=1):
    """features float32, labels int64, masks of three disjoint splits that leave some nodes out."""
    random = np.random.default_rng(seed)
    place = random.permutation(n)
    masks = {
        name: np.isin(np.arange(n), place[start:stop])
        for name, start, stop in (("train", 0, n // 3), ("val", n // 3, n // 2), ("test", n // 2, n - 5))
    }
    labels = random.integers(0, classes, n)
    labels[0] = classes - 1
    return random.standard_normal((n, width)).astype(np.float32), labels, masks


def split_codes(masks):
    """The splits as a graph file has them."""
    return sum(masks[name] * code for code, name in enumerate(("train", "val", "test"), 1))


def save_npz(path, src, dst, n, layout="edge_index", **changes):
    """An .npz in one of the two layouts, complete, with `changes` put over it (None takes an array out)."""
    features, labels, masks = node_data(n)
    arrays = {f"{name}_mask": mask for name, mask in masks.items()} | {"num_classes": np.int64(4)}
    if layout == "edge_index":
        arrays |= {"edge_index": np.stack([src, dst]), "x": features, "y": labels}
    else:
        arrays |= {"src": src, "dst": dst, "feat": features, "label": labels}
    arrays |= changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@dataclass
class View:
    """A graph file in original order. edges: sorted list of (dst, src, type, weight); out: the same from
    /topology_out."""

    edges: list
    out: list | None
    features: np.ndarray | None
    labels: np.ndarray
    split: np.ndarray
    meta: object
    node_type: np.ndarray | None
    said: str = ""


def view(path):
    """Read a whole file with loops, checking on the way that rows are in canonical order."""
    with GraphFile(path) as file:
        meta, original = file.meta, file.read("nodes/original_id")
        back = np.argsort(original)
        if meta.sparse_features:
            indptr, indices, data = (file.read(f"nodes/features_csr/{name}") for name in ("indptr", "indices", "data"))
            rows = scipy.sparse.csr_matrix((data, indices, indptr), (meta.num_nodes, meta.num_features))
            assert rows.has_sorted_indices
            features = rows.toarray()
        else:
            features = file.read("nodes/features") if "nodes/features" in file else None
        edges = _edge_list(file, "", original)
        out = None if meta.undirected else sorted((s, d, t, w) for d, s, t, w in _edge_list(file, "_out", original))
        assert ("topology_out/indptr" in file) != meta.undirected
        return View(
            edges,
            out,
            None if features is None else features[back],
            file.read("nodes/labels")[back],
            file.read("nodes/split")[back],
            meta,
            file.read("nodes/type")[back] if "nodes/type" in file else None,
        )


def _edge_list(file, suffix, original):
    indptr, indices = file.read(f"topology{suffix}/indptr"), file.read(f"topology{suffix}/indices")
    weight = file.read(f"edges{suffix}/weight") if file.meta.weighted else np.ones(len(indices), np.float32)
    kind = file.read(f"edges{suffix}/type") if file.meta.typed else np.zeros(len(indices), np.int32)
    result = []
    for node in range(len(indptr) - 1):
        row = [(indices[e], kind[e], weight[e]) for e in range(indptr[node], indptr[node + 1])]
        assert row == sorted(row)
        result += [(int(original[node]), int(original[other]), int(t), float(w)) for other, t, w in row]
    return sorted(result)


def edge_list(src, dst, weight=None, kind=None):
    """The expected `View.edges` of edges given one by one."""
    weight = np.ones(len(src), np.float32) if weight is None else np.asarray(weight, np.float32)
    kind = np.zeros(len(src), np.int32) if kind is None else kind
    return sorted((int(d), int(s), int(t), float(w)) for s, d, t, w in zip(src, dst, kind, weight))


def halo_oracle(edges, rank_of, num_ranks):
    """(edges cut, rows that each rank receives, and sends) of an edge list in original ids, with sets."""
    halo, cut = [set() for _ in range(num_ranks)], 0
    for dst, src, _, _ in edges:
        if rank_of[src] != rank_of[dst]:
            cut += 1
            halo[rank_of[dst]].add(src)
    sent = Counter(rank_of[src] for rows in halo for src in rows)
    return cut, [len(rows) for rows in halo], [sent[rank] for rank in range(num_ranks)]
