"""The compiled library's constants, structures and functions with their arguments, read from `native/interface.h`.

No part of that file is repeated here: `read` makes ctypes' definitions of it when the package is imported. The library
is used only if it was built from the same sources (`library.py`).
"""

import ctypes
import re
from ctypes import c_char_p, c_void_p
from struct import Struct
from typing import Any, NamedTuple

import torch

from .sources import NATIVE

_WORD = re.compile(r"(?:const )?(\w+) (\*?)(\w+)$")


class Function(NamedTuple):
    """A prototype: the result's type, {name: type} of the arguments, and that of the structure behind the last one."""

    result: Any
    arguments: dict[str, Any]
    structure: dict[str, Any] | None


class Interface(NamedTuple):
    """A header's declarations, by name."""

    constants: dict[str, int]
    structures: dict[str, dict[str, Any]]
    functions: dict[str, Function]


def read(text: str) -> Interface:
    """Parse a header, in `native/interface.h`'s subset of C."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = Interface({name: int(value) for name, value in re.findall(r"(HG_\w+)(?: =)? (\d+)", text)}, {}, {})

    def declared(declaration: str) -> tuple[str, Any]:
        """(name, type) of `const void *x` and the like."""
        match = _WORD.match(" ".join(declaration.split()))
        assert match is not None, declaration
        kind, star, name = match.groups()
        if star:
            return name, c_char_p if kind == "char" else c_void_p
        return name, getattr(ctypes, f"c_{kind.removesuffix('_t')}")

    for members, name in re.findall(r"typedef struct \{([^{}]*)\} (hg_\w+);", text):
        found.structures[name] = dict(declared(each) for each in members.split(";")[:-1])
    for kind, name, given in re.findall(r"HG_EXPORT ([\w ]+[ *])(hg_\w+)\(([^()]*)\);", text):
        result = None if kind == "void " else declared(kind + "result")[1]
        arguments = {} if given == "void" else dict(declared(each) for each in given.split(","))
        pointer = re.search(r"(hg_\w+) \*a$", given)
        found.functions[name] = Function(result, arguments, found.structures[pointer[1]] if pointer else None)
    return found


def packer(structure: dict[str, Any]) -> Struct:
    """Packs the values of a structure's fields, in their order, with its padding within and at the end."""
    return Struct("".join(kind._type_ for kind in structure.values()) + "0P")


INTERFACE = read((NATIVE / "interface.h").read_text(encoding="utf-8"))
_CONSTANTS = INTERFACE.constants


def codes(*names: str) -> dict[str, int]:
    """{name: code} of constants of the header, in lower case and without HG_."""
    return {name: _CONSTANTS[f"HG_{name.upper()}"] for name in names}


#: {type or name: code}; vector paths, the narrowest first.
ELEMENT_CODES = dict(
    zip(
        (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8),
        codes("f32", "f64", "bf16", "f16", "i8").values(),
        strict=True,
    )
)
VECTOR_PATHS = codes("baseline", "avx2", "avx512")
SUMMED_ROWS, SUMMED_SHARES = _CONSTANTS["HG_SUMMED_ROWS"], _CONSTANTS["HG_SUMMED_SHARES"]
