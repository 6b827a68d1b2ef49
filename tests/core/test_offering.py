"""`import hpcgnn` offers its names and starts nothing; what it loads for a name is what the name needs."""

import pytest

import hpcgnn
import hpcgnn.nn

from .launching import start

PROGRAM = """
import sys
import hpcgnn
assert {"save_graph", "from_pyg", "load", "read_run"} <= set(hpcgnn.__all__) & set(dir(hpcgnn))
assert not {"torch", "numpy", "mpi4py", "partition_tools"} & set(sys.modules), sorted(sys.modules)
hpcgnn.save_graph
hpcgnn.read_run
assert not {"torch", "mpi4py", "pandas"} & set(sys.modules), sorted(sys.modules)
import threading
assert threading.active_count() == 1
"""


def test_names_load_no_more_than_they_need():
    done = start(0, "-c", PROGRAM)
    assert done.code == 0, done.err


@pytest.mark.parametrize("package", [hpcgnn, hpcgnn.nn], ids=["hpcgnn", "hpcgnn.nn"])
def test_every_name_is_there(package):
    for name in package.__all__:
        assert callable(getattr(package, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'loda'"):
        _ = package.loda
