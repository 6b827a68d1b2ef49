"""The compiled library's constants, structures and functions with their arguments, read from `native/interface.h`.

No part of that file is repeated here: `read` makes ctypes' definitions of it when the package is imported. The library
is used only if it was built from the same sources (`library.py`).
"""

import ctypes
import re
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

import torch

from .sources import NATIVE

_NUMBERS = {
    "int": c_int,
    "int32_t": c_int32,
    "int64_t": c_int64,
    "uint32_t": c_uint32,
    "uint64_t": c_uint64,
    "double": c_double,
}
_WORD = re.compile(r"(?:const )?(\w+) (\*?)(\w+)$")


class Function(NamedTuple):
    """A prototype: the result's type, and {name: type} of the arguments."""

    result: Any
    arguments: dict[str, Any]


class Interface(NamedTuple):
    """A header's declarations, by name."""

    constants: dict[str, int]
    structures: dict[str, type[ctypes.Structure]]
    functions: dict[str, Function]


def read(text: str) -> Interface:
    """Parse a header, in `native/interface.h`'s subset of C. Raises ValueError for an unknown type or line."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = Interface({}, {}, {})

    def declared(declaration: str) -> tuple[str, Any]:
        """(name, type) of `const void *x` and the like."""
        match = _WORD.match(" ".join(declaration.split()))
        if match is None:
            raise ValueError(f"native/interface.h: expected a type and a name, got {declaration!r}")
        kind, star, name = match.groups()
        if star and kind in found.structures:
            return name, POINTER(found.structures[kind])
        if star:
            return name, c_char_p if kind == "char" else c_void_p
        if kind not in _NUMBERS:
            raise ValueError(f"native/interface.h: expected one of {', '.join(_NUMBERS)}, got {declaration!r}")
        return name, _NUMBERS[kind]

    def arguments(text: str) -> dict[str, Any]:
        return {} if text == "void" else dict(declared(each) for each in text.split(","))

    def constants(match: re.Match[str]) -> str:
        found.constants.update((name, int(value)) for name, value in re.findall(r"(HG_\w+)(?: =)? (\d+)", match[0]))
        return ""

    def structure(match: re.Match[str]) -> str:
        fields = [declared(each) for each in match[1].split(";")[:-1]]
        found.structures[match[2]] = type(match[2], (ctypes.Structure,), {"_fields_": fields})
        return ""

    def function(match: re.Match[str]) -> str:
        result = None if match[1] == "void " else declared(match[1] + "result")[1]
        found.functions[match[2]] = Function(result, arguments(match[3]))
        return ""

    text = re.sub(r"^#(ifndef|include|endif|define \w+$|define HG_EXPORT).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"#define HG_\w+ \d+ *\n|enum \{[^{}]*\};", constants, text)
    text = re.sub(r"typedef struct \{([^{}]*)\} (hg_\w+);", structure, text)
    text = re.sub(r"HG_EXPORT ([\w ]+[ *])(hg_\w+)\(([^()]*)\);", function, text)
    if text.strip():
        raise ValueError(f"native/interface.h: expected nothing else than is read here, got {text.strip()[:80]!r}")
    return found


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
