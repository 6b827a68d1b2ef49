"""`hpcgnn predict` of a run of links: scores of listed pairs, best targets of nodes, or held-out edges, as CSV.

A line has the ids of source and target, and the score or the split. Listed pairs lie on rank 0. Of best targets and
held-out edges it holds a part at a time.
"""

import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from hpcgnn.app.corrections import PredictedTable
from hpcgnn.app.loaded_model import LoadedModel
from hpcgnn.app.predict import PredictRequest
from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.extras.links.given import to_owners
from hpcgnn.extras.links.loss import NodePool, places_in
from hpcgnn.extras.links.options import LINKS
from hpcgnn.extras.links.ranks import Best, Known, best_targets, with_ids
from hpcgnn.extras.links.task import exact_scorer, wide
from hpcgnn.graphfile.given_links import HELD
from hpcgnn.graphfile.hdf5 import replacing, writing
from hpcgnn.graphfile.original_order import share_of
from hpcgnn.graphfile.own_ids import ids_of, nodes_of
from hpcgnn.graphfile.storage import GraphFile

# Listed pairs whose scores are made at a time.
_PAIRS = 1 << 12
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


class LinkTable(PredictedTable):
    """A table of pairs.

    pairs: a file of pairs of ids, whose scores are wanted, or ''. best: number of the best targets that are wanted of
    each node, or None. held_out: whether the run's held-out edges are wanted.
    """

    def __init__(self, pairs: str = "", best: int | None = None, held_out: bool = False) -> None:
        self._best, self._held_out, self.inputs = best, held_out, [pairs] * bool(pairs)
        asked = {"--pairs": pairs, "--best": best is not None, "--held-out": held_out}
        self.option = " ".join(option for option, wanted in asked.items() if wanted)
        self._pairs = np.zeros((0, 2), np.int64)

    def check(self, config: Config, request: PredictRequest) -> None:
        task, option = config.task.task, self.option
        if self._best is not None and self._best < 1:
            raise ConfigError(f"--best: expected a number of targets from 1, got {self._best}")
        if task != LINKS:
            raise ConfigError(f"{option}: expected a run of --task {LINKS}, got one of {task}: {config.run.run_dir}")
        if (
            request.probabilities
            or request.logits
            or request.layer
            or " " in option
            or (request.nodes and self._best is None)
        ):
            raise ConfigError(f"{option} writes a table of its own; expected no other option of what is written")
        if Path(request.output).suffix.lower() != ".csv":
            raise ConfigError(f"{option}: expected a name of --output that ends with .csv, got {request.output}")

    def read(self, file: GraphFile) -> None:
        for path in self.inputs:
            self._pairs = read_pairs(path, file)

    def write(self, output: str, trained: LoadedModel, logits: torch.Tensor, nodes: np.ndarray | None) -> int:
        h, last = wide(logits), "split" if self._held_out else "score"
        if self._held_out:
            tables = held_tables(trained)
        elif self._best is None:
            tables = pair_table(trained, h, self._pairs)
        else:
            tables = best_tables(trained, h, nodes, self._best)
        return write_table(output, tables, last, trained.trainer.plan.config.data.graph, trained.trainer.comm)


def pair_table(trained: LoadedModel, h: torch.Tensor, pairs: np.ndarray) -> Iterator[Best]:
    """The scores of the pairs of rank 0, by original ids, some at a time. Collective. h: (n_p, F) own embeddings."""
    ids, comm, scorer = trained.trainer.local.original_id, trained.trainer.comm, exact_scorer(trained.trainer.model)
    for start in range(0, comm.broadcast_object(len(pairs)), _PAIRS):
        some = torch.from_numpy(comm.broadcast_object(pairs[start : start + _PAIRS]))
        pool = NodePool.of(some.unique(), ids)
        source, target = pool.gathered(h, comm, "evaluation").double()[places_in(pool.ids, some.T.contiguous())]
        yield *some.numpy().T, scorer(source, target).float().numpy()


def best_tables(trained: LoadedModel, h: torch.Tensor, nodes: np.ndarray | None, most: int) -> Iterator[Best]:
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


def held_tables(trained: LoadedModel) -> Iterator[Best]:
    """The held-out edges of a run and their splits in place of scores, by source, on rank 0. Collective."""
    local, comm = trained.trainer.local, trained.trainer.comm
    ids, share = local.original_id, share_of(0, local.num_nodes, comm)[1]
    for split in HELD:
        pairs = [torch.zeros(0, 2, dtype=torch.int64)]
        for block, others in with_ids((local.task_edges[split],), ids, comm):
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
    count, out = 0, None
    with contextlib.ExitStack() as until_whole:
        with comm.together("making the table", on_one=True):
            if comm.rank == 0:
                name = until_whole.enter_context(replacing(path))
                out = until_whole.enter_context(open(name, "w", encoding="utf-8", newline=""))
                out.write(f"source,target,{last}\n")
        for source, target, value in tables:
            with comm.together("writing the table", on_one=True), writing(path):
                if out is not None:
                    with GraphFile(graph) as file:
                        rows = zip(ids_of(file, source), ids_of(file, target), value.astype(str), strict=True)
                        csv.writer(out, lineterminator="\n").writerows(rows)
            count += len(value)
    comm.barrier()
    return count
