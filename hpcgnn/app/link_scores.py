"""`hpcgnn predict` of a run of links: scores of listed pairs, best targets of nodes, or held-out edges, as CSV.

A line has the ids of source and target, and the score or the split. Listed pairs lie on rank 0. Of best targets and
held-out edges it holds a part at a time.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from hpcgnn.app.trained import Trained
from hpcgnn.comm.communicator import Communicator
from hpcgnn.errors import FormatError
from hpcgnn.exchange.stream import Stream
from hpcgnn.graph.given_pairs import placed_pairs, to_owners
from hpcgnn.graphfile.hdf5 import writing
from hpcgnn.graphfile.original_order import share_of
from hpcgnn.graphfile.own_ids import ids_of, nodes_of
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.ops.pair_ranks import Best, Known, best_targets, pair_scores
from hpcgnn.ops.pairs import NodePool
from hpcgnn.outputs.written_together import made_by_one
from hpcgnn.tasks.link_ranking import with_ids
from hpcgnn.tasks.link_training import exact_scorer

# Sources whose best targets are looked for at a time.
_SOURCES = 1 << 10
# Held-out edges that rank 0 gets at a time.
_PIECE = 1 << 18


def read_pairs(path: str, file: GraphFile) -> np.ndarray:
    """int64 (m, 2), the nodes of the pairs of ids that a text file lists. Raises FormatError."""
    try:
        lines = [line for line in Path(path).read_text("utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"--pairs {path}: expected a text file with two ids in each line: {error}") from error
    mark = next((mark for mark in ",\t" if lines and mark in lines[0]), None)
    parted = csv.reader(lines, delimiter=mark) if mark else map(str.split, lines)
    rows = [[field.strip() for field in row] for row in parted]
    columns, width = (0, 1), 2
    if rows and {"source", "target"} <= set(rows[0]):
        columns, width = (rows[0].index("source"), rows[0].index("target")), len(rows.pop(0))
    wrong = next((row for row in rows if len(row) != width), None if rows else ["no line"])
    if wrong is not None:
        raise FormatError(
            f"--pairs {path}: expected the ids of a source and a target in each line, or columns with the headings "
            f"source and target; got {' '.join(wrong)[:40]}"
        )
    return nodes_of(file, [row[end] for row in rows for end in columns], f"--pairs {path}").reshape(-1, 2)


def pair_table(trained: Trained, h: torch.Tensor, pairs: np.ndarray) -> Iterator[Best]:
    """The scores of the pairs of rank 0, by original ids, on rank 0. Collective. h: (n_p, F) own embeddings."""
    local, buffers, comm = trained.trainer.local, trained.trainer.buffers, trained.trainer.comm
    cap = max(1, buffers.cap(buffers.widest_row))
    edges = placed_pairs(pairs, local.original_id, local.num_nodes, cap, comm)
    stream = Stream(edges.own, edges.halo, edges.plan, buffers, comm)
    numbers, scores = (each.numpy() for each in pair_scores(stream, h, exact_scorer(trained.trainer.model)))
    sent = np.stack([numbers, scores], 1, dtype=np.float64)
    place, score = to_owners(sent, np.zeros(len(sent), np.int64), comm).T
    yield *pairs.T, score[np.argsort(place)].astype(np.float32)


def best_tables(trained: Trained, h: torch.Tensor, nodes: np.ndarray | None, most: int) -> Iterator[Best]:
    """The `most` best targets of each node that rank 0 names, or of all, some nodes at a time, on rank 0. Collective.

    A node itself and targets that the node has an edge to are left out. nodes: ascending original ids.
    """
    local, comm = trained.trainer.local, trained.trainer.comm
    ids, scorer = local.original_id, exact_scorer(trained.trainer.model)
    edges = with_ids((local.inward,), ids, comm)
    every, count = comm.broadcast_object((nodes is None, local.num_nodes if nodes is None else len(nodes)))
    for start in range(0, count, _SOURCES):
        some = np.arange(start, min(start + _SOURCES, count))
        if not every:
            some = comm.broadcast_object(None if nodes is None else nodes[some])
        pool = NodePool.of(torch.from_numpy(some), ids)
        yield best_targets(pool, h, ids, Known(pool, local.num_owned, edges), scorer, most, comm)


def held_tables(trained: Trained) -> Iterator[Best]:
    """The held-out edges of a run and their splits in place of scores, by source, on rank 0. Collective."""
    local, comm = trained.trainer.local, trained.trainer.comm
    ids, share = local.original_id, share_of(0, local.num_nodes, comm)[1]
    for split, edges in local.held.items():
        pairs = [torch.zeros(0, 2, dtype=torch.int64)]
        for block, others in with_ids((edges,), ids, comm):
            pairs.append(torch.stack([others[block.indices.long()], ids[block.edge_rows.long()]], 1))
        mine = torch.cat(pairs).numpy()
        mine = to_owners(mine, mine[:, 0] // share, comm)
        mine = mine[np.lexsort(mine.T[::-1])]
        for rank, count in enumerate(comm.allgather_object(len(mine))):
            for start in range(0, count, _PIECE):
                sent = mine[start : start + _PIECE] if rank == comm.rank else mine[:0]
                found = to_owners(sent, np.zeros(len(sent), np.int64), comm)
                yield *found.T, np.full(len(found), split)


def write_table(path: str, tables: Iterator[Best], last: str, graph: str, comm: Communicator) -> int:
    """Write tables of rank 0 to a new file in CSV; return its number of lines there. Collective.

    last: the heading of the third column.
    """
    count = 0
    with made_by_one(path, lambda name: Path(name).write_text(f"source,target,{last}\n"), comm) as (name, *_):
        for source, target, value in tables:
            with comm.together("writing the table", on_one=True), writing(path):
                if comm.rank == 0:
                    with GraphFile(graph) as file, open(name, "a", encoding="utf-8", newline="") as out:
                        rows = zip(ids_of(file, source), ids_of(file, target), value.astype(str), strict=True)
                        csv.writer(out, lineterminator="\n").writerows(rows)
            count += len(value)
    return count
