"""How often all ranks together read a graph file, by the number of ranks.

    python jobs/bench/threads/threads.py reads --graph graph.h5

HDF5 reads whole chunks, so a rank reads more than its share where a map scatters its clusters. The program's own code
plans the reads of every rank, of every dataset that ranks read in shares; nothing is read but the index. The table has
the bytes of all chunks that are touched, as a multiple of the bytes of these datasets, and the reads of a rank in the
mean.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from tabulate import tabulate

from hpcgnn.graphfile.chunks import most_chunks
from hpcgnn.graphfile.ranges import pieces
from hpcgnn.graphfile.storage import PIECE_BYTES, GraphFile


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this question."""
    parser.add_argument("--graph", required=True, help="graph file with maps")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit code."""
    rows = []
    with GraphFile(arguments.graph) as graph:
        datasets = list(_datasets(graph.file))
        size = sum(dataset.size * dataset.dtype.itemsize for dataset, _ in datasets)
        for name, counts in graph.partitionings().items():
            for ranks in counts:
                rank_of = graph.file[f"partitionings/{name}/{ranks}"][:]
                costs = [_read(dataset, bounds, rank_of, rank) for rank in range(ranks) for dataset, bounds in datasets]
                read, calls = (sum(column) for column in zip(*costs, strict=True))
                rows.append([name, ranks, f"{read / size:.2f}", f"{calls / ranks:.0f}"])
    print(tabulate(rows, ["map", "ranks", "bytes read / bytes of the file", "reads of a rank"]))
    return 0


def _datasets(file: h5py.File) -> Iterator[tuple[Any, np.ndarray]]:
    """(dataset, int64 (K + 1,): the rows at which its clusters begin)."""
    offsets = file["clusters/offsets"][:]
    found: list[Any] = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
    for dataset in found:
        _, group, *_ = dataset.name.split("/")
        if group.startswith("topology"):
            indptr = file[f"{group}/indptr"]
            yield dataset, offsets if dataset == indptr else indptr[:][offsets]
        elif group.startswith("edges") and dataset.name != "/edges/features":
            yield dataset, file[group.replace("edges", "topology")]["indptr"][:][offsets]
        elif group == "nodes" and dataset.shape[0] == offsets[-1]:
            yield dataset, offsets


def _read(dataset: Any, bounds: np.ndarray, rank_of: np.ndarray, rank: int) -> tuple[int, int]:
    """(bytes of the chunks that a rank reads, how many reads)."""
    mine = np.flatnonzero(rank_of == rank)
    ranges: list[tuple[int, int]] = []
    for start, stop in zip(bounds[mine].tolist(), bounds[mine + 1].tolist(), strict=True):
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], stop
        else:
            ranges.append((start, stop))
    row_bytes = dataset.dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64))
    chunk = dataset.chunks[0]
    planned = list(pieces(ranges, chunk, max(1, PIECE_BYTES // row_bytes), most_chunks(chunk * row_bytes)))
    chunks = sum((piece.stop - 1) // chunk - piece.start // chunk + 1 for piece in planned)
    return chunks * chunk * row_bytes, len(planned)
