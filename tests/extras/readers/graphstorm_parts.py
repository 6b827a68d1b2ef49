"""Makes graphstorm.tgz: a folder that GraphStorm 0.5.1 constructed and partitioned, over DGL 2.1.0.

    python tests/partition_tools/graphstorm_parts.py    # where DGL and GraphStorm are

The ids of papers and authors are words, p0, p7, … and a0, a3, …; the first feature of a node is its number, and one
part has one author.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

ARCHIVE = Path(__file__).with_name("graphstorm.tgz")
PAPERS, AUTHORS = 14, 9
SOURCES = {"cites": (1, 40, PAPERS), "writes": (2, 20, AUTHORS)}
PARQUET = {"format": {"name": "parquet"}}


def ends(relation):
    """The numbers of the ends of a relation's edges, to papers."""
    first, count, sources = SOURCES[relation]
    edge = np.arange(count)
    return (7 * edge + first) % sources, (3 * edge * edge + edge // sources) % PAPERS


def word(kind, number):
    """The id of a node."""
    return f"p{7 * number}" if kind == "paper" else f"a{3 * number}"


def make(folder):
    """Write the tables and their description, and construct the graph in acm/ below a folder."""
    papers, authors = range(PAPERS), range(AUTHORS)
    tables = {
        "paper": {
            "node_id": [word("paper", number) for number in papers],
            "emb": [[float(number), float(number**2)] for number in papers],
            "venue": [number % 3 for number in papers],
        },
        "author": {
            "node_id": [word("author", number) for number in authors],
            "age": [[float(number)] for number in authors],
        },
    }
    for relation, kind in (("cites", "paper"), ("writes", "author")):
        src, dst = ends(relation)
        tables[relation] = {
            "source_id": [word(kind, number) for number in src],
            "dest_id": [word("paper", number) for number in dst],
        }
    for name, columns in tables.items():
        pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet")
    nodes = [
        {"features": [{"feature_col": "emb", "feature_name": "feat"}]}
        | {"labels": [{"label_col": "venue", "task_type": "classification", "split_pct": [0.5, 0.25, 0.25]}]},
        {"features": [{"feature_col": "age", "feature_name": "feat"}]},
    ]
    of_nodes = [
        {"node_type": kind, **PARQUET, "files": [f"{kind}.parquet"], "node_id_col": "node_id", **of_type}
        for kind, of_type in zip(("paper", "author"), nodes, strict=True)
    ]
    of_edges = [
        {"relation": [kind, relation, "paper"], **PARQUET, "files": [f"{relation}.parquet"]}
        | {"source_id_col": "source_id", "dest_id_col": "dest_id"}
        for kind, relation in (("paper", "cites"), ("author", "writes"))
    ]
    told = {"version": "gconstruct-v0.1", "nodes": of_nodes, "edges": of_edges}
    (folder / "conf.json").write_text(json.dumps(told))
    options = "--conf-file conf.json --output-dir acm --graph-name acm --num-parts 2 --num-processes 1"
    command = [
        sys.executable,
        "-m",
        "graphstorm.gconstruct.construct_graph",
        *options.split(),
        "--part-method",
        "random",
    ]
    subprocess.run(command, cwd=folder, env=os.environ, check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(Path(folder) / "acm", "acm")
