"""Registries of names that options choose from. `--plugin FILE` and the packages of `hpcgnn.extras` add to them.

Both use the same registries. A registry stands in the module that reads it, such as MODELS in nn/registry.py.
"""

import contextlib
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry")
#: The origins of entries: the core, a package of `hpcgnn.extras`, or the user's file.
CORE, USER = "core", "user"
_origin = CORE
_registries: list["Registry[Any]"] = []


class Registry(dict[str, Entry], Generic[Entry]):
    """{name: entry}, in the order of registration. kind: the noun of an entry, for messages."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.origins = kind, dict[str, str]()
        _registries.append(self)

    def register(self, name: str, entry: Entry) -> None:
        """Offer an entry. Raises ValueError for a name that is taken."""
        self.check(name)
        self[name], self.origins[name] = entry, _origin

    def check(self, name: str) -> None:
        """Raise ValueError for a name that is taken."""
        if name in self:
            raise ValueError(f"register: the {self.kind} {name!r} exists; choose another name than {', '.join(self)}")


def names_of_user() -> dict[str, set[str]]:
    """{kind: the names that the user's file has registered}."""
    return {each.kind: {name for name, origin in each.origins.items() if origin == USER} for each in _registries}


@contextlib.contextmanager
def registering(origin: str) -> Iterator[None]:
    """Entries that the body registers have this origin."""
    global _origin
    before, _origin = _origin, origin
    try:
        yield
    finally:
        _origin = before


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
        with registering(name):
            importlib.import_module(f"hpcgnn.extras.{name}.{module}")
    return tuple(packages)
