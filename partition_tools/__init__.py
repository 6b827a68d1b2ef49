"""From raw data to a partitioned graph file: import or generate a graph, cluster it, map the clusters to ranks, check
it.

Everything here runs in one process, without MPI and without torch, usually once per graph on a login node, so that the
training job only reads. Files are written through `hpcgnn.graphfile.storage` alone: this package needs `hpcgnn`, and
`hpcgnn` does not need it. `python -m partition_tools --help` lists the sub-commands. Python code calls the functions
below; importing the package loads none of them (docs/python.md).
"""

from typing import TYPE_CHECKING

from hpcgnn.exports import lazy_exports

if TYPE_CHECKING:
    from partition_tools.cli.add_snapshots import add_snapshots as add_snapshots
    from partition_tools.cli.generate_graph import generate_graph as generate_graph
    from partition_tools.cli.import_graph import import_graph as import_graph
    from partition_tools.cli.inspect_graph import inspect_graph as inspect_graph
    from partition_tools.cli.partition_graph import partition_graph as partition_graph
    from partition_tools.cli.verify_graph import verify_graph as verify_graph
    from partition_tools.interface.arrays import partition as partition
    from partition_tools.interface.arrays import save_graph as save_graph
    from partition_tools.interface.libraries import from_pyg as from_pyg
    from partition_tools.interface.libraries import from_scipy as from_scipy

_HOMES = {
    "save_graph": "partition_tools.interface.arrays",
    "partition": "partition_tools.interface.arrays",
    "from_pyg": "partition_tools.interface.libraries",
    "from_scipy": "partition_tools.interface.libraries",
    "add_snapshots": "partition_tools.cli.add_snapshots",
    "import_graph": "partition_tools.cli.import_graph",
    "generate_graph": "partition_tools.cli.generate_graph",
    "partition_graph": "partition_tools.cli.partition_graph",
    "inspect_graph": "partition_tools.cli.inspect_graph",
    "verify_graph": "partition_tools.cli.verify_graph",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
