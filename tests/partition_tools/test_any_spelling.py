"""Any small graph, written in every format, in any order of nodes and edges, and with any spelling of ids, is one graph
with one uuid, or is refused for a reason. The oracle (spelling.py) imports nothing of the package.
"""

import contextlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from spelling import (
    GRAPHS,
    ambiguous,
    contents,
    edge_rows,
    expected,
    graphs,
    of_networkx,
    order,
    spellings,
    tables,
    write_parquet,
    write_text,
)

import partition_tools
from hpcgnn.errors import HpcgnnError
from partition_tools.cli.import_graph import import_graph
from partition_tools.readers.tables.tables import TableOptions

# The same examples in each run, so that a failure can be repeated; HPCGNN_EXAMPLES=500 tries more of them.
EXAMPLES = settings(
    max_examples=int(os.environ.get("HPCGNN_EXAMPLES", 10)),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def arrays(graph, both_ways=False):
    """Arguments of `save_graph`, in the numbering of the oracle."""
    meant = expected(graph, both_ways)
    edges = np.array([edge[:2] for edge in meant["edges"]]).T
    weights = np.array([edge[2] for edge in meant["edges"]], np.float32) if graph.weights else None
    features = np.array(meant["features"], np.float32)[:, None]
    split = {name: np.array(meant["splits"]) == code for code, name in enumerate(("train", "val", "test"), 1)}
    return {
        "edge_index": edges,
        "features": features,
        "labels": meant["labels"],
        "split": split,
        "edge_weight": weights,
    }


def check(graph, path, both_ways=False):
    """The file holds what is meant, and has the uuid of the same graph from arrays."""
    held, uuid = contents(path)
    assert held == expected(graph, both_ways)
    partition_tools.save_graph(path.with_name("arrays.h5"), **arrays(graph, both_ways), force=True)
    assert contents(path.with_name("arrays.h5"))[1] == uuid


def imported(graph, path, options, both_ways=False, **more):
    """Import and `check`; a refusal is right only where one number is written in two ways."""
    output = path.parent / "graph.h5"
    try:
        import_graph(path, output, tables=options, **more)
    except HpcgnnError as error:
        assert ambiguous(graph), error
        assert "one number but two texts" in str(error) and not output.exists()
        return
    check(graph, output, both_ways)


@EXAMPLES
@given(graphs(), spellings, st.randoms(use_true_random=False), st.sampled_from([1 << 13, None]))
def test_text(graph, how, random, memory):
    """Edge lists at once and in blocks, with tables that are keyed by ids."""
    with folder() as place:
        nodes, edges = list(range(len(graph.ids))), list(range(len(graph.edges)))
        random.shuffle(nodes)
        random.shuffle(edges)
        heading = ["src", "dst", "weight"][: 3 if graph.weights else 2]
        named = how.heading or graph.weights or any(not name.lstrip("-").isdigit() for name in graph.ids)
        path = write_text(place / "e.csv", edge_rows(graph, edges), how, heading if named else None)
        keyed = tables(graph, place, nodes, replace(how, key=how.key or "id"))
        options = TableOptions(relabel=True, heading=bool(named), **keyed)
        imported(graph, path, options, memory=memory)


@EXAMPLES
@given(graphs("numbers"), spellings, st.randoms(use_true_random=False))
def test_text_of_row_numbers(graph, how, random):
    """The same without --relabel; tables are keyed, also by a first column without a name, or by position."""
    with folder() as place:
        nodes = list(range(len(graph.ids)))
        random.shuffle(nodes)
        path = write_text(
            place / "e.csv",
            edge_rows(graph, range(len(graph.edges))),
            how,
            ["from", "to", "w"][: 3 if graph.weights else 2],
        )
        keyed = tables(graph, place, nodes, replace(how, separator="," if how.key == "" else how.separator))
        imported(graph, path, TableOptions(**keyed))
        meant = expected(graph)
        np.save(place / "f.npy", np.array(meant["features"], np.float32))
        write_text(place / "l.csv", [[label] for label in meant["labels"]], replace(how, packed=False), ["label"])
        options = TableOptions(features=place / "f.npy", labels=place / "l.csv", splits=keyed["splits"])
        import_graph(path, place / "position.h5", tables=options)
        check(graph, place / "position.h5")


@EXAMPLES
@given(graphs(), spellings, st.randoms(use_true_random=False))
def test_parquet(graph, how, random):
    with folder() as place:
        nodes, edges = list(range(len(graph.ids))), list(range(len(graph.edges)))
        random.shuffle(nodes)
        random.shuffle(edges)
        heading = ["src", "dst", "weight"][: 3 if graph.weights else 2]
        path = write_parquet(place / "e", edge_rows(graph, edges), how, heading)
        # Row numbers without a name are no ids beside nodes that have others.
        how = replace(how, key="id") if how.key == "" and list(graph.ids) == [str(i) for i in nodes] else how
        keyed = tables(graph, place, nodes, how, write_parquet)
        imported(graph, path, TableOptions(relabel=True, **keyed))


@EXAMPLES
@given(graphs(), st.randoms(use_true_random=False), st.booleans())
def test_objects_in_memory(graph, random, directed):
    """NetworkX, and arrays with node_ids, whose order numbers the nodes: here the sorted one."""
    assume(not ambiguous(graph))
    with folder() as place:
        made = of_networkx(graph, order(graph), GRAPHS[directed])
        partition_tools.from_networkx(made, place / "graph.h5", features=["x"])
        check(graph, place / "graph.h5", not directed)
        names, nodes = [graph.ids[i] for i in order(graph)], list(range(len(graph.ids)))
        random.shuffle(nodes)
        by_name = pd.DataFrame({"f": graph.features, "y": graph.labels, "s": graph.splits}, index=list(graph.ids)).iloc[
            nodes
        ]
        ends = np.array([[graph.ids[s], graph.ids[d]] for s, d in graph.edges], dtype=object).T
        weights = None if graph.weights is None else np.array(graph.weights)[:, None]
        partition_tools.save_graph(
            place / "graph.h5",
            ends,
            by_name[["f"]],
            by_name["y"],
            by_name["s"],
            node_ids=names,
            edge_weight=weights,
            force=True,
        )
        check(graph, place / "graph.h5")


@EXAMPLES
@given(
    graphs("numbers", parallel=False), st.randoms(use_true_random=False), st.sampled_from(["csr", "csc", "coo", "bsr"])
)
def test_positions(graph, random, format):
    """Formats whose nodes have no names: archives, tensors, matrices; edges in any order."""
    with folder() as place:
        given = arrays(graph)
        edges = list(range(given["edge_index"].shape[1]))
        random.shuffle(edges)
        ends = given["edge_index"][:, edges]
        weights = None if graph.weights is None else given["edge_weight"][edges]
        named = {"edge_index": ends, "x": given["features"], "y": np.array(given["labels"])}
        named |= {f"{name}_mask": mask for name, mask in given["split"].items()}
        named |= {} if weights is None else {"edge_weight": weights}
        np.savez(place / "g.npz", **named)
        imported(graph, place / "g.npz", TableOptions())
        partition_tools.from_pyg(_data(named), place / "graph.h5", force=True)
        check(graph, place / "graph.h5")
        matrix = scipy.sparse.coo_array(
            (np.ones(len(edges)) if weights is None else weights, ends), (len(graph.ids),) * 2
        )
        options = _tables_of(place, given)
        scipy.sparse.save_npz(place / "m.npz", matrix.asformat(format))
        scipy.io.mmwrite(place / "m.mtx", matrix, field="pattern" if weights is None else "real", symmetry="general")
        for name in ("m.npz", "m.mtx"):
            if graph.weights is None or any(weight != 1 for weight in graph.weights) or name == "m.mtx":
                import_graph(place / name, place / "graph.h5", tables=options, force=True)
                check(graph, place / "graph.h5")


def _data(named):
    """A Data object of PyG."""
    data = pytest.importorskip("torch_geometric.data").Data
    return data(**{name: value.tolist() if name == "y" else torch.as_tensor(value) for name, value in named.items()})


def _tables_of(place, given):
    np.save(place / "f.npy", given["features"])
    pd.Series(given["labels"], name="label").to_csv(place / "l.csv", index=False)
    masks = pd.DataFrame({f"{name}_mask": mask.astype(int) for name, mask in given["split"].items()})
    masks.to_csv(place / "s.csv", index=False)
    return TableOptions(features=place / "f.npy", labels=place / "l.csv", splits=place / "s.csv")


@EXAMPLES
@given(graphs("numbers", parallel=False))
def test_metis(graph):
    """Undirected, without self loops, counted from 1."""
    pairs = {}
    for (s, d), weight in zip(graph.edges, graph.weights or (1,) * len(graph.edges), strict=True):
        if s != d:
            pairs.setdefault((min(s, d), max(s, d)), weight)
    assume(pairs)
    graph = replace(graph, edges=tuple(pairs), weights=tuple(pairs.values()) if graph.weights else None)
    with folder() as place:
        meant = expected(graph, True)
        lines = [[] for _ in graph.ids]
        for s, d, weight in meant["edges"]:
            lines[s] += [d + 1, weight] if graph.weights else [d + 1]
        head = f"{len(graph.ids)} {len(pairs)}" + (" 001" if graph.weights else "")
        (place / "g.graph").write_text("\n".join([head, *(" ".join(map(str, line)) for line in lines)]) + "\n")
        imported(graph, place / "g.graph", _tables_of(place, arrays(graph, True)), True)
