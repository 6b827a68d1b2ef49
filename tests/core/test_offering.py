"""`import hpcgnn` offers its names and starts nothing; a name loads only the modules that it needs."""

import pytest

import hpcgnn
import partition_tools

from .launching import start

PROGRAM = """
import sys
import hpcgnn
import partition_tools
assert "load" in set(hpcgnn.__all__) & set(dir(hpcgnn))
assert {"save_graph", "from_pyg", "import_graph"} <= set(partition_tools.__all__) & set(dir(partition_tools))
assert not {"torch", "numpy", "mpi4py"} & set(sys.modules), sorted(sys.modules)
assert "partition_tools.interface" not in sys.modules
partition_tools.save_graph
import partition_tools.cli.main
assert not {"torch", "mpi4py", "pandas", "polars", "pymetis"} & set(sys.modules), sorted(sys.modules)
import threading
assert threading.active_count() == 1
"""


def test_names_load_no_more_than_they_need():
    done = start(0, "-c", PROGRAM)
    assert done.code == 0, done.err


@pytest.mark.parametrize("package", [hpcgnn, partition_tools], ids=lambda package: package.__name__)
def test_every_name_is_there(package):
    for name in package.__all__:
        assert callable(getattr(package, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'loda'"):
        _ = package.loda
