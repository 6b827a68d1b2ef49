"""Names that a package offers and loads when they are asked for: importing it starts nothing, and loads neither torch
nor MPI.
"""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], moved: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """(`__getattr__`, `__dir__`) for the module `package`.

    homes: {name: its module}. moved: {former name: the package that offers it now}, for an error with the remedy.
    """

    def getattribute(name: str) -> Any:
        if name in moved:
            raise AttributeError(f"{package}.{name} has moved; use {moved[name]}.{name} (import {moved[name]})")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*homes, *vars(importlib.import_module(package))})

    return getattribute, names
