"""Layers that work from the disk (`--memory`): where a layer at work does not fit, some of its columns do.

A layer has a least number of bytes, more columns fit in more bytes, and an epoch moves bytes to and from the disk.
"""

from dataclasses import dataclass

from hpcgnn.config import Config
from hpcgnn.memory.columns import AHEAD, BEHIND, Disk
from hpcgnn.memory.scratch import GRAIN
from hpcgnn.nn.model import Model
from hpcgnn.ops.row_tiles import tile_rows
from hpcgnn.plan.rules import Selection

# Columns that are in memory at the least, and of which there are multiples.
LEAST, _STEP = 32, 16
# Matrices that a gradient reads in tiles at a time, and tiles of rows that it has. It writes one.
_READ, _TILES = 3, 6
# What the arena cannot use between tensors of different sizes, as a share.
_LOST = 1 / 16
# Of each node: the last layer's products, its result, and its gradient.
_LOGITS = 3


@dataclass(frozen=True)
class DiskLayers:
    """Layers of a model that can work from the disk. widths: of all layers' outputs; itemsize: of their numbers."""

    widths: tuple[int, ...]
    itemsize: int

    @property
    def hidden(self) -> int:
        """The width of the matrices on disk."""
        return max(self.widths[:-1])

    def at_work(self, rows: int, columns: int, ranks: int, tile: int | None = None) -> int:
        """Bytes of a rank with some number of rows, and of columns in memory. Constants come on top.

        tile: rows that are worked on at a time (None: of this process).
        """
        row, columns = self.hidden * self.itemsize, min(columns, self.hidden)
        resident = rows * columns * self.itemsize * (1 + (ranks > 1))  # and sums for rows with edges to other ranks
        logits = _LOGITS * rows * self.widths[-1] * self.itemsize
        tiles = _TILES * min(tile or tile_rows(), rows) * row
        block = min(max(Disk.block, GRAIN // self.itemsize * row), rows * row + GRAIN)
        blocks = (_READ * (1 + AHEAD) + BEHIND + 2) * block
        return int((resident + logits + tiles + blocks) * (1 + _LOST))

    def columns_within(self, room: int, rows: int, ranks: int, tile: int | None = None) -> int:
        """The most columns of a rank's rows that have room; LEAST or all at the least."""
        fitting = [k for k in range(LEAST, self.hidden, _STEP) if self.at_work(rows, k, ranks, tile) <= room]
        if self.at_work(rows, self.hidden, ranks, tile) <= room:
            return self.hidden
        # The last group should not be a small rest.
        most = max(fitting, default=min(LEAST, self.hidden))
        groups = -(-self.hidden // most)
        return min(most, -(-self.hidden // (groups * _STEP)) * _STEP)

    def file_bytes(self, rows: int) -> int:
        """The bytes of the scratch file: inputs of layers, sums, and two gradients."""
        return (len(self.widths) + 2) * rows * self.hidden * self.itemsize

    def moved(self, rows: int, columns: int) -> tuple[int, int]:
        """(bytes written, bytes read) in an epoch, without padding; all layers compute all rows."""
        matrix, columns = rows * self.hidden * self.itemsize, min(columns, self.hidden)
        rest = matrix * (-(-self.hidden // columns) - 1) * columns // self.hidden  # but the last columns
        narrows = self.widths[-1] < self.hidden
        wide = len(self.widths) - 1 - narrows
        written = matrix + wide * 2 * (rest + matrix) - (0 if narrows else matrix)
        read = matrix + wide * ((matrix + 2 * rest) + (2 * matrix + 2 * rest)) + narrows * 3 * matrix
        return written + narrows * matrix, read - (0 if narrows else matrix + rest)


def disk_layers(model: object, config: Config, changing: int) -> DiskLayers | None:
    """The layers of a model that can work from the disk, or None. changing: columns of the features that change."""
    exact = Selection(config).schedule.exact_epochs and config.schedule.halo_dtype == "fp32"
    if not (exact and changing == 0 and isinstance(model, Model) and model.works_on_disk):
        return None
    return DiskLayers(tuple(model.output_widths), model.spec.dtype.itemsize)
