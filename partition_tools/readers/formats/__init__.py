"""The formats of the package, and the choice of a format for an input."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.likely_names import file_beside, perhaps
from hpcgnn.registry import load_extras
from partition_tools.readers.formats import edgelist, matrix_market, metis_graph, npz, ogb, scipy_npz
from partition_tools.readers.sources import SOURCES
from partition_tools.readers.tables.refused import check_file, unread
from partition_tools.workspace.settings import declared, made

load_extras("formats")  # before those that take a folder for a table of their own
for _module in (scipy_npz, npz, edgelist, matrix_market, ogb, metis_graph):
    SOURCES.register(_module.NAME, _module)
#: The keys of all of them.
KEYS = declared(module.OPTIONS for module in SOURCES.values())


def format_of(path: Path, name: str | None) -> Any:
    """The module of the format of this name, or (None) of the first one that the path looks like.

    Raises FormatError, ConfigError: there is no input, no such format, or the path looks like none.
    """
    if not path.exists():
        raise FormatError(f"no input at {path}: expected a file or folder of a graph{file_beside(path)}")
    check_file(path)
    if name is not None and name not in SOURCES:
        raise ConfigError(f"unknown format {name!r}; expected one of {', '.join(SOURCES)}{perhaps(name, SOURCES)}")
    found = (
        next((module for module in SOURCES.values() if module.matches(path)), None) if name is None else SOURCES[name]
    )
    if found is None:
        raise unread(path)
    return found


def options_of(module: Any, given: Mapping[str, Any]) -> Any:
    """The options of a format from {key: value}. Raises ConfigError for keys of others."""
    own = declared([module.OPTIONS])
    if strange := [name for name in given if name not in own]:
        raise ConfigError(
            f"{strange[0]} is no option of the format {module.NAME}, which has {', '.join(own) or 'none'}"
        )
    return made(module.OPTIONS, given)
