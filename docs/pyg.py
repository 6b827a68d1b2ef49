#!/usr/bin/env python3
"""Writes the tables of docs/pyg.md: every layer of PyG, and how from_pyg_layer serves it.

    python docs/pyg.py [FILE]

tests/extras/pyg/test_layers.py compares each of these layers with PyG at several ranks, and holds the page to it.
"""

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch_geometric

import hpcgnn
import partition_tools

PAGE = Path(__file__).resolve().parent / "pyg.md"
sys.path.insert(0, str(PAGE.parents[1] / "tests"))
from extras.pyg import pyg_layers  # noqa: E402

WAYS = ("streams", "keeps messages", "refused", "not tried")


def main(path: Path = PAGE) -> None:
    """Write the page."""
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        graph = _graph(Path(folder) / "graph.h5")
        rows = {name: _served(name, graph) for name in pyg_layers.every()}
    classes = pyg_layers.names()
    counts = [sum(rows[name][0] == way for name in classes) for way in WAYS]
    text = [
        f"Of the {len(classes)} classes of `torch_geometric.nn.conv` in PyG {torch_geometric.__version__}, "
        f"**{counts[0]} stream**, **{counts[1]} keep messages**, "
        f"{counts[2]} are refused, and {counts[3]} were not tried.",
        "",
        *_table("class", classes, rows),
        "",
        "Whole models, and options that change how a layer is served:",
        "",
        *_table("model or layer", [name for name in rows if name not in classes], rows),
    ]
    begin, end = "<!-- tables -->\n", "<!-- end of tables -->"
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(begin) + len(begin)], page[page.index(end) :]
    path.write_text(before + "\n" + "\n".join(text) + "\n\n" + after, encoding="utf-8")


def _table(title: str, names: list[str], rows: dict[str, tuple[str, str]]) -> list[str]:
    """A row for each way and reason, with the names that it serves."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name in names:
        alike.setdefault(rows[name], []).append(f"`{name}`")
    ordered = sorted(alike.items(), key=lambda row: WAYS.index(row[0][0]))
    return [
        f"| {title} | how | why |",
        "|---|---|---|",
        *[f"| {', '.join(found)} | {' | '.join(served)} |" for served, found in ordered],
    ]


def _graph(file: Path) -> "hpcgnn.TrainingGraph":
    random = np.random.default_rng(0)
    edges, labels = np.unique(random.integers(0, 28, (2, 90)), axis=1), np.arange(30) % 2
    masks = {name: np.arange(30) % 3 == place for place, name in enumerate(("train", "val", "test"))}
    partition_tools.save_graph(file, edges, random.standard_normal((30, 4)), labels, masks, ranks=[1])
    return hpcgnn.load(file, edges=True, precision="fp64", self_loops="keep")


def _served(name: str, graph: "hpcgnn.TrainingGraph") -> tuple[str, str]:
    way, reason, conv = pyg_layers.wrapped(name)
    if conv is not None:
        count = graph._local.inward.num_edges
        nodes, edges = pyg_layers.inputs(name, conv.layer, graph.num_nodes, count)
        x = pyg_layers.rows(name, graph.num_nodes)
        way, why, _ = pyg_layers.tried(name, conv, lambda each: each(graph, x, **nodes, **edges))
        reason = why or reason
    return way, reason


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
