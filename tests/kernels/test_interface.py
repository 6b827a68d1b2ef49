"""The interface of Python and C: the functions of both sides."""

import ctypes
import re

from hpcgnn.kernels import interface
from hpcgnn.kernels.sources import NATIVE


def test_every_exported_function_is_in_the_interface():
    exported = {
        name for file in NATIVE.glob("*.c") for name in re.findall(r"^HG_EXPORT .*?(hg_\w+)\(", file.read_text(), re.M)
    }
    assert exported == set(interface.INTERFACE.functions)


def test_structures_are_as_large_as_those_of_c():
    """With the padding at their end: C copies whole ones."""
    for name, fields in interface.INTERFACE.structures.items():
        there = type(name, (ctypes.Structure,), {"_fields_": [*fields.items()]})
        assert interface.packer(fields).size == ctypes.sizeof(there), name
