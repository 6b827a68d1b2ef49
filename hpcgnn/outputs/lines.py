"""Result tables in CSV, which all ranks write at once.

Lines differ in length, so a rank knows its place in the file only when the ranks before it have counted their lines.
With several ranks, each one makes its lines twice: to count them, and to write them. Formatting takes most of the time,
and all ranks format at once. The bytes are the same for every number of ranks.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from hpcgnn.comm.communicator import Communicator
from hpcgnn.graphfile.hdf5 import writing
from hpcgnn.graphfile.original_order import OriginalOrder
from hpcgnn.graphfile.own_ids import read_ids
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.outputs.files import Contents, csv_heading, csv_lines
from hpcgnn.outputs.written_together import NumberedSlab, by_all_or_one, made_by_one, put_into

# Numbers whose text is made at a time; as Python has them they take some fifty bytes each.
_NUMBERS = 1 << 19


def write_lines(
    path: str | Path, contents: Contents, order: OriginalOrder, graph: GraphFile, comm: Communicator
) -> None:
    """Write the rows of `order` to a new file. Collective.

    Args:
        path: the new file.
        contents: columns that the file holds.
        order: brings rows into the original order of the nodes.
        graph: source of the nodes' ids, opened by every rank.
        comm: the communicator.

    Raises:
        FormatError: on a rank that cannot write; all other ranks raise RemoteError.
    """

    def make(temporary: str) -> None:
        Path(temporary).write_bytes(csv_heading(contents))

    def lines(slabs: Iterator[NumberedSlab]) -> Iterator[bytes]:
        for _, (nodes, slab) in slabs:
            step = max(1, _NUMBERS // sum(contents.widths.values()))
            for start in range(0, len(nodes), step):
                some = nodes[start : start + step]
                rows = {name: each[start : start + step] for name, each in slab.items()}
                yield csv_lines(contents, some, read_ids(graph, some) if contents.ids else None, rows)

    with made_by_one(path, make, comm) as (temporary, place, _, seen):
        if seen and comm.size > 1:
            with comm.together("counting lines of results"):
                count = sum(map(len, lines(order.own_slabs())))
            counts = comm.allgather_object(count)
            with comm.together("making the file of results", on_one=True), writing(path):
                if comm.rank == 0:  # an NFS client would else fill pages at the end of the file with zeros
                    os.truncate(temporary, place + sum(counts))
            place += sum(counts[: comm.rank])

        def put_all(slabs: Iterator[NumberedSlab]) -> None:
            with put_into(temporary) as put:
                written = place
                for piece in lines(slabs):
                    put(written, piece)
                    written += len(piece)

        by_all_or_one(put_all, order, seen, path, comm)
