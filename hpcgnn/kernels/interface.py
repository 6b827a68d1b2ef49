"""The compiled library's constants, structures and functions, read from `native/interface.h`, and their arguments.

No part of that file is repeated here: `read` makes ctypes' definitions of it when the package is imported. The library
is used only if it was built from the same sources (`library.py`).
"""

import ctypes
import re
from collections.abc import Mapping
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
#: The type of `ctypes.byref`'s result, which has no name.
Pointer = Any
#: Of attention dropout: key, threshold, scale, ids of rows, ids of columns.
EdgeRule = tuple[int, int, float, torch.Tensor, torch.Tensor]
#: Of dropout after ELU: key, threshold, scale, ids, or None where nothing is dropped.
RowRule = tuple[int, int, float, torch.Tensor | None]
_WORD = re.compile(r"(?:const )?(\w+) (\*?)(\w+)$")


class Interface(NamedTuple):
    """A header's declarations: {name: value}, {name: ctypes.Structure}, {name: (result type, argument types)}."""

    constants: dict[str, int]
    structures: dict[str, type[ctypes.Structure]]
    functions: dict[str, tuple[Any, list[Any]]]


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

    def arguments(text: str) -> list[Any]:
        return [] if text == "void" else [declared(each)[1] for each in text.split(",")]

    def constants(match: re.Match[str]) -> str:
        found.constants.update((name, int(value)) for name, value in re.findall(r"(HG_\w+)(?: =)? (\d+)", match[0]))
        return ""

    def structure(match: re.Match[str]) -> str:
        fields = [declared(each) for each in match[1].split(";")[:-1]]
        found.structures[match[2]] = type(match[2], (ctypes.Structure,), {"_fields_": fields})
        return ""

    def function(match: re.Match[str]) -> str:
        result = None if match[1] == "void " else declared(match[1] + "result")[1]
        found.functions[match[2]] = result, arguments(match[3])
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


def _codes(*names: str) -> dict[str, int]:
    return {name: _CONSTANTS[f"HG_{name.upper()}"] for name in names}


#: {type or name: code}; vector paths, the narrowest first; {code: name} of a block's faults.
ELEMENT_CODES = dict(
    zip(
        (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8),
        _codes("f32", "f64", "bf16", "f16", "i8").values(),
        strict=True,
    )
)
VECTOR_PATHS = _codes("baseline", "avx2", "avx512")
BLOCK_FAULTS = {_CONSTANTS["HG_VALID"]: ""} | {
    code: name
    for name, code in _codes(
        "indptr_start", "indptr_order", "indptr_end", "row_range", "row_order", "index_range"
    ).items()
}
#: {the end of the edges that a block's rows are: code}.
EDGE_ENDS = _codes("rows_are_destinations", "rows_are_sources", "rows_are_either")
#: {how attention's scores are made of whole rows: code}.
SCORES = {name: _CONSTANTS[f"HG_SCORE_{name.upper()}"] for name in ("sum", "product", "mixed")}
#: {how messages are reduced: code}.
REDUCTIONS = {"sum": _CONSTANTS["HG_REDUCE_SUM"], "moments": _CONSTANTS["HG_REDUCE_MOMENTS"]}
SUMMED_ROWS, SUMMED_SHARES = _CONSTANTS["HG_SUMMED_ROWS"], _CONSTANTS["HG_SUMMED_SHARES"]
FLOAT_PRODUCTS, ROUNDED_PRODUCTS = _CONSTANTS["HG_FLOAT_PRODUCTS"], _CONSTANTS["HG_ROUNDED_PRODUCTS"]


def _strides(kind: type[ctypes.Structure]) -> dict[str, str | None]:
    """{field: the field of its row stride, or None}."""
    names = {field[0] for field in kind._fields_}
    return {name: f"{name}_stride" if f"{name}_stride" in names else None for name in names}


#: {structure: itself, its fields}.
_KNOWN = {name: (kind, _strides(kind)) for name, kind in INTERFACE.structures.items()}


def pointer(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor begins; NULL for None."""
    return None if tensor is None else tensor.data_ptr()


def rows_of(tensor: torch.Tensor | None) -> tuple[int | None, int]:
    """Where a matrix begins, and how far apart its rows are."""
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


def filled(name: str, tensors: Mapping[str, torch.Tensor | None], **values: float | None) -> Pointer:
    """Return a pointer to a structure, filled with pointers to tensors, their row strides, and values.

    Row strides are set if the structure has fields for them. Other fields are 0 or NULL.
    """
    kind, known = _KNOWN[name]
    made = kind()  # what is not set stays 0 or NULL
    for field, tensor in tensors.items():
        if field not in known:
            raise TypeError(f"{name} has no field {field}")
        if tensor is not None:
            setattr(made, field, tensor.data_ptr())
            if (stride := known[field]) is not None:
                setattr(made, stride, tensor.stride(0))
    for field, value in values.items():
        if field not in known:
            raise TypeError(f"{name} has no field {field}")
        setattr(made, field, value)
    return ctypes.byref(made)


def as_field(reference: Pointer) -> Pointer:
    """A pointer to what `filled` made, for a field of another structure, which keeps it alive."""
    return ctypes.pointer(reference._obj)
