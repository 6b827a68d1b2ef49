"""Full-batch graph neural networks on MPI ranks, with memory that falls linearly with their number.

Run `hpcgnn` or `python -m hpcgnn`, or import the names below (docs/python.md). Each loads its modules at first use.
Importing the package starts neither MPI nor a thread.
"""

from typing import TYPE_CHECKING

from hpcgnn.offering import lazily

if TYPE_CHECKING:
    from hpcgnn.interface.graph import TrainingGraph as TrainingGraph
    from hpcgnn.interface.load import load as load

__version__ = "0.4.0"

_HOMES = {
    "load": "hpcgnn.interface.load",
    "TrainingGraph": "hpcgnn.interface.graph",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazily(__name__, _HOMES)
