"""Full-batch graph neural networks on MPI ranks, with memory that falls linearly with their number.

Run `hpcgnn` or `python -m hpcgnn`, or import the names below (docs/python.md). Each loads its modules at first use.
Importing the package starts neither MPI nor a thread.
"""

from typing import TYPE_CHECKING

from hpcgnn.exports import lazy_exports

if TYPE_CHECKING:
    from hpcgnn.interface.load import load as load
    from hpcgnn.interface.loaded_graph import TrainingGraph as TrainingGraph

__version__ = "0.4.0"

_HOMES = {
    "load": "hpcgnn.interface.load",
    "TrainingGraph": "hpcgnn.interface.loaded_graph",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
