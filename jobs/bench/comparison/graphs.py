"""The graph files of a comparison: one of the usual size, and a small one for the constant part of memory.

Made by the project's own generator and kept, since a comparison is repeated more often than its graph changes.
"""

import subprocess
import sys
from pathlib import Path

from shared.processes import clean_environment, last_words

from comparison.environments import ROOT
from hpcgnn.errors import HpcgnnError
from hpcgnn.graphfile.storage import GraphFile

# Like ogbn-arxiv made undirected, with a self loop on every node: the graph that published figures are closest to.
USUAL = {"nodes": 169_343, "degree": 13.78, "features": 128, "classes": 40}


def generated_graph(folder, ranks):
    """The path of the usual graph in `folder`, made if it is not there. Raises HpcgnnError."""
    return _made(Path(folder) / "usual.h5", USUAL, ranks)


def small_graph(folder, described, nodes, ranks):
    """A graph of `nodes` nodes with the degree, features and classes of another, made if it is not there."""
    degree = max(1.0, min(described["edges"] / described["nodes"] - 1, nodes / 8))
    like = {"degree": round(degree, 2), "features": described["features"], "classes": described["classes"]}
    name = "-".join(["small", *(f"{value:g}" for value in (nodes, *like.values()))])
    return _made(Path(folder) / f"{name}.h5", {"nodes": nodes, **like}, ranks)


def describe_graph(path):
    """{path, uuid, nodes, edges, self_loops, features, classes}. Raises HpcgnnError."""
    with GraphFile(path) as file:
        meta = file.meta
        return {
            "path": str(path),
            "uuid": meta.uuid,
            "nodes": meta.num_nodes,
            "edges": meta.num_edges,
            "self_loops": meta.num_self_loops,
            "features": meta.num_features,
            "classes": meta.num_classes,
        }


def _made(path, properties, ranks):
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        options = [part for key, value in properties.items() for part in (f"--{key}", str(value))]
        _partition_tools("generate", "planted", "-o", path, "--self-loops", "add", *options)
        _partition_tools("partition", "add", path, "--ranks", ",".join(map(str, sorted({1, *ranks}))))
    return path


def _partition_tools(*arguments):
    command = [sys.executable, "-m", "partition_tools", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=clean_environment(1, PYTHONPATH=str(ROOT))
    )
    if done.returncode:
        raise HpcgnnError(f"making a graph for the comparison failed: {last_words(done.stderr)}")
