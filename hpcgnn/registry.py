"""Registries of names that options choose from. `--plugin FILE` and the packages of `hpcgnn.extras` add to them.

Both use the same registries. A registry stands in the module that reads it, such as MODELS in nn/registry.py.
"""

import importlib
import importlib.util
import pkgutil
from functools import cache
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class Registry(dict[str, Entry], Generic[Entry]):
    """{name: entry}, in the order of registration. kind: the noun of an entry, for messages."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def register(self, name: str, entry: Entry) -> None:
        """Offer an entry. Raises ValueError for a name that is taken."""
        self.check(name)
        self[name] = entry

    def check(self, name: str) -> None:
        """Raise ValueError for a name that is taken."""
        if name in self:
            raise ValueError(f"register: the {self.kind} {name!r} exists; choose another name than {', '.join(self)}")


@cache
def load_extras(module: str = "hooks") -> tuple[str, ...]:
    """Import a module of each package of `hpcgnn.extras` that has it; return the names of these packages.

    The core names no package: without the folder it is the same program with less on offer.
    """
    try:
        folder = importlib.import_module("hpcgnn.extras").__path__
    except ModuleNotFoundError as error:
        if error.name != "hpcgnn.extras":
            raise
        return ()
    packages = sorted(package.name for package in pkgutil.iter_modules(folder))
    packages = [name for name in packages if importlib.util.find_spec(f"hpcgnn.extras.{name}.{module}") is not None]
    for name in packages:
        importlib.import_module(f"hpcgnn.extras.{name}.{module}")
    return tuple(packages)
