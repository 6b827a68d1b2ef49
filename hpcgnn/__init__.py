"""Full-batch graph neural networks on MPI ranks, with memory that falls linearly with their number.

Importing the package starts nothing: no MPI, no thread. `python -m hpcgnn` (or the command `hpcgnn`) is the way in, and
from Python the names below, each of which loads what it needs when it is asked for (docs/python.md).
"""

from typing import TYPE_CHECKING

from hpcgnn.offering import lazily

if TYPE_CHECKING:
    from hpcgnn.interface.graph import TrainingGraph as TrainingGraph
    from hpcgnn.interface.load import load as load
    from hpcgnn.report.frame import read_run as read_run
    from partition_tools.interface.arrays import partition as partition
    from partition_tools.interface.arrays import save_graph as save_graph
    from partition_tools.interface.libraries import from_dgl as from_dgl
    from partition_tools.interface.libraries import from_networkx as from_networkx
    from partition_tools.interface.libraries import from_pyg as from_pyg
    from partition_tools.interface.libraries import from_scipy as from_scipy

__version__ = "0.2.0"

# Graph files are made by partition_tools, which stands on this package: no room of it imports that one.
_HOMES = {
    "save_graph": "partition_tools.interface.arrays",
    "partition": "partition_tools.interface.arrays",
    "from_pyg": "partition_tools.interface.libraries",
    "from_dgl": "partition_tools.interface.libraries",
    "from_scipy": "partition_tools.interface.libraries",
    "from_networkx": "partition_tools.interface.libraries",
    "load": "hpcgnn.interface.load",
    "TrainingGraph": "hpcgnn.interface.graph",
    "read_run": "hpcgnn.report.frame",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazily(__name__, _HOMES)
