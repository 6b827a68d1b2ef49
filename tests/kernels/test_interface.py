"""The interface of Python and C: the functions of both sides."""

import re

from hpcgnn.kernels import interface
from hpcgnn.kernels.sources import NATIVE


def test_every_exported_function_is_in_the_interface():
    exported = {
        name for file in NATIVE.glob("*.c") for name in re.findall(r"^HG_EXPORT .*?(hg_\w+)\(", file.read_text(), re.M)
    }
    assert exported == set(interface.INTERFACE.functions)
