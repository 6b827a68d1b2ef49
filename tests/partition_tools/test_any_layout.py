"""The graphs of test_any_spelling.py in further formats and layouts: OGB's folders, folders of arrays, files of torch,
archives with the ids of their nodes; and ids of any characters.
"""

import gzip
import string
from dataclasses import replace

import h5py
import numpy as np
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from spelling import Graph, ambiguous, contents, edge_rows, graphs, order, spellings, tables, write_text
from test_any_spelling import EXAMPLES, arrays, check, folder, imported

import partition_tools
from partition_tools.cli.import_graph import import_graph
from partition_tools.readers.tables.tables import TableOptions

randoms = st.randoms(use_true_random=False)


def shuffled(graph, random):
    """(arguments of `save_graph`, numbered labels, names of classes), with the edges in another order."""
    given = arrays(graph)
    edges = list(range(given["edge_index"].shape[1]))
    random.shuffle(edges)
    given["edge_index"] = given["edge_index"][:, edges]
    given["edge_weight"] = None if graph.weights is None else given["edge_weight"][edges]
    names, numbers = np.unique(given["labels"], return_inverse=True)
    return given, numbers, names


@EXAMPLES
@given(graphs("numbers"), randoms, st.sampled_from(["mask", "uint8", "idx"]), st.sampled_from("<>"), st.booleans())
def test_named_arrays(graph, random, split, byte_order, fortran):
    """An archive, a folder of .npy files, a dict of tensors, in any byte order and layout, with masks or lists."""
    with folder() as place:
        given, numbers, names = shuffled(graph, random)
        named = {"edge_index": given["edge_index"].astype(f"{byte_order}i8"), "y": numbers, "class_names": names}
        named["x"] = np.array(given["features"], f"{byte_order}f8", order="F" if fortran else "C")
        if graph.weights is not None:
            named["edge_weight"] = given["edge_weight"].reshape(-1, 1)
        for name, mask in given["split"].items():
            lists = {
                "mask": ("mask", mask),
                "uint8": ("mask", mask.astype(np.uint8)),
                "idx": ("idx", np.flatnonzero(mask)),
            }
            word, value = lists[split]
            ambiguous_list = word == "idx" and len(value) == len(mask) and np.isin(value, (0, 1)).all()
            named[f"{name}_{word if not ambiguous_list else 'mask'}"] = mask if ambiguous_list else value
        np.savez(place / "g.npz", **named)
        (place / "g").mkdir()
        for name, array in named.items():
            np.save(place / "g" / f"{name}.npy", array)
        tensors = {
            name: torch.as_tensor(np.asarray(array, array.dtype.newbyteorder("=")))
            for name, array in named.items()
            if name != "class_names"
        }
        torch.save(tensors, place / "g.pt")
        for name in ("g.npz", "g"):
            import_graph(place / name, place / "graph.h5", force=True)
            check(graph, place / "graph.h5")
        import_graph(place / "g.pt", place / "numbers.h5", force=True)
        del named["class_names"]
        np.savez(place / "n.npz", **named)
        import_graph(place / "n.npz", place / "same.h5", force=True)
        # A file of tensors is the archive of the same arrays.
        assert uuid(place / "numbers.h5") == uuid(place / "same.h5")


def uuid(path):
    with h5py.File(path) as file:
        return file.attrs["uuid"]


@EXAMPLES
@given(graphs("numbers"), randoms, spellings, st.sampled_from([1 << 13, None]))
def test_folder_of_ogb(graph, random, how, memory):
    """raw/*.csv.gz and split/time/*.csv.gz, with any line ends, at once and in blocks."""
    graph = replace(graph, weights=None)
    with folder() as place:
        given, numbers, _ = shuffled(graph, random)
        raw, split = place / "d" / "raw", place / "d" / "split" / "time"
        raw.mkdir(parents=True)
        split.mkdir(parents=True)

        def write(path, rows):
            text = "".join(",".join(map(str, row)) + how.end for row in rows)
            path.write_bytes(gzip.compress((("\ufeff" if how.mark else "") + text).encode()))

        write(raw / "edge.csv.gz", given["edge_index"].T.tolist())
        write(raw / "num-node-list.csv.gz", [[len(numbers)]])
        write(raw / "num-edge-list.csv.gz", [[len(graph.edges)]])
        write(raw / "node-feat.csv.gz", given["features"].tolist())
        write(raw / "node-label.csv.gz", [[number] for number in numbers])
        masks = given["split"]
        for name, file in (("train", "train"), ("val", "valid"), ("test", "test")):
            write(split / f"{file}.csv.gz", [[node] for node in np.flatnonzero(masks[name])])
        import_graph(place / "d", place / "graph.h5", memory=memory)
        labels = {"labels": numbers, "class_names": []}
        partition_tools.save_graph(place / "arrays.h5", **{**given, **labels})
        assert uuid(place / "graph.h5") == uuid(place / "arrays.h5")


@EXAMPLES
@given(graphs("numbers", parallel=False), st.sampled_from(["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]))
def test_matrices_in_memory(graph, layout):
    with folder() as place:
        given = arrays(graph)
        weights = np.ones(len(graph.edges)) if graph.weights is None else given["edge_weight"]
        matrix = scipy.sparse.coo_matrix((weights, given["edge_index"]), (len(graph.ids),) * 2).asformat(layout)
        rest = (given["features"], given["labels"], given["split"])
        partition_tools.from_scipy(matrix, place / "graph.h5", *rest, weighted=graph.weights is not None)
        check(graph, place / "graph.h5")


@EXAMPLES
@given(graphs("gaps"), randoms)
def test_ids_of_an_archive(graph, random):
    """n_id of PyG and DGL: the rows are in any order, the edges name rows, and the file keeps the ids."""
    nodes = list(range(len(graph.ids)))
    random.shuffle(nodes)
    row = {node: place for place, node in enumerate(nodes)}
    with folder() as place:
        ends = np.array([[row[s], row[d]] for s, d in graph.edges]).T
        ids = np.array([int(graph.ids[i]) for i in nodes])
        features = np.array([graph.features[i] for i in nodes], np.float32)[:, None]
        labels = np.array([graph.labels[i] for i in nodes])
        np.savez(place / "g.npz", edge_index=ends, x=features, y=labels, n_id=ids)
        import_graph(place / "g.npz", place / "graph.h5")
        by_id = {graph.ids[i]: (graph.features[i], graph.labels[i]) for i in nodes}
        held, _ = contents(place / "graph.h5")
        kept = kept_ids(place / "graph.h5", len(nodes))
        assert {str(name): (held["features"][i], held["labels"][i]) for i, name in enumerate(kept)} == by_id
        meant = sorted((graph.ids[s], graph.ids[d]) for s, d in graph.edges)
        assert sorted((str(kept[s]), str(kept[d])) for s, d, _ in held["edges"]) == meant


def kept_ids(path, count):
    with h5py.File(path) as file:
        return file["original/id"][()].tolist() if "original/id" in file else list(range(count))


characters = st.one_of(
    st.sampled_from("#%'eE.+-_ 0019") | st.sampled_from(string.ascii_letters),
    st.characters(exclude_categories=("C", "Z"), exclude_characters='",'),
)
texts = st.text(characters, min_size=1, max_size=6).map(str.strip).filter(bool)


@EXAMPLES
@given(st.data(), spellings, randoms, st.sampled_from([1 << 13, None]))
def test_ids_of_any_characters(data, how, random, memory):
    """Texts of any letters, signs and digits, in edges and tables, quoted or not, come out as they went in."""
    names = tuple(data.draw(st.lists(texts, min_size=2, max_size=6, unique=True)))
    n = len(names)
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=6))
    graph = Graph(names, tuple(edges), None, tuple(range(n)), ("C", "C#", "%", "x", "y", "z")[:n], ("train",) * n)
    with folder() as place:
        nodes = list(range(n))
        random.shuffle(nodes)
        how = replace(how, key=how.key or "id")
        path = write_text(place / "e.csv", edge_rows(graph, range(len(edges))), how, ["src", "dst"])
        options = TableOptions(relabel=True, heading=True, **tables(graph, place, nodes, how))
        imported(graph, path, options, memory=memory)
        if (place / "graph.h5").exists():
            assert kept_texts(place / "graph.h5") in (None, [names[i] for i in order(graph)])
        else:
            assert ambiguous(graph)


def kept_texts(path):
    """The texts that name the nodes in a graph file, or None for numbers."""
    with h5py.File(path) as file:
        if "original/id_text" not in file:
            return None
        ends, text = file["original/id_offsets"][()], bytes(file["original/id_text"][()])
        return [text[begin:end].decode() for begin, end in zip(ends, ends[1:])]
