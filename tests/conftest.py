"""What all tests share: the policies of the program itself, and the folder that `oracle` and `graphs` are imported
from.
"""

import gc
import os
import sys
from pathlib import Path

import pytest

# Set before torch is loaded, as the program does it: the allocator's policy, and idle threads that sleep instead of
# spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
from hpcgnn.__main__ import set_process_policies  # noqa: E402

set_process_policies()

from torch.testing import _comparison  # noqa: E402

# No tensor here is a DTensor. To find that out, the first comparison of each process would load SymPy and torch's
# compiler.
_comparison._HAS_DTENSOR = False

# Appended, not inserted: folders here are named after the packages they test and must not hide them.
HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)


def pytest_collection_finish():
    """Modules stay: the collections of garbage that each training makes need not go through all of torch."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Nor need they go through what is left after the last test of a file: mostly what pytest keeps for its report."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result
