"""The interface of Python and C: the declarations read from a header, their layout by a compiler, and the functions of
both sides.
"""

import re
import subprocess

import pytest

from hpcgnn.kernels import interface
from hpcgnn.kernels.sources import NATIVE


def test_structures_are_laid_out_as_the_compiler_has_them(tmp_path):
    """Every field at its place and of its size."""
    structures = interface.INTERFACE.structures
    fields = [(name, field) for name, kind in structures.items() for field, _ in kind._fields_]
    lines = [
        f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));' for name, field in fields
    ]
    program = '#include <stddef.h>\n#include <stdio.h>\n#include "interface.h"\nint main(void) {\n'
    (tmp_path / "layout.c").write_text(program + "\n".join(lines) + "\nreturn 0; }\n")
    command = ["gcc", "-I", NATIVE, tmp_path / "layout.c", "-o", tmp_path / "layout"]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("gcc is not here")
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
    mine = [getattr(structures[name], field) for name, field in fields]
    assert said == [f"{field.offset} {field.size}" for field in mine]


def test_every_exported_function_is_in_the_interface():
    exported = {
        name for file in NATIVE.glob("*.c") for name in re.findall(r"^HG_EXPORT .*?(hg_\w+)\(", file.read_text(), re.M)
    }
    assert exported == set(interface.INTERFACE.functions)
