"""What users are told of a graph file that is not there, that is none, or that lacks a map."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.likely_names import file_beside, likely

# Inputs of `python -m partition_tools import`, for whoever trains on one of them.
_TABLES = (".csv", ".tsv", ".txt", ".parquet", ".npz", ".mtx", ".graph")
_TOOLS = "python -m partition_tools"


def no_file(path: Path) -> FormatError:
    """There is no file."""
    return FormatError(f"no graph file at {path}: expected an HDF5 file of `{_TOOLS}`{file_beside(path)}")


def unreadable(path: Path, error: OSError) -> FormatError:
    """The file is of another kind, or damaged."""
    if path.suffix in _TABLES:
        made = shlex.quote(str(path.with_suffix(".h5")))
        command = f"{_TOOLS} import {shlex.quote(str(path))} -o {made}"
        return FormatError(f"{path} is a table and no graph file; make one of it: `{command}`")
    return FormatError(
        f"{path} is not a readable HDF5 file (truncated, corrupted or foreign): {error}; make it again with `{_TOOLS}`"
    )


def no_map(path: Path, name: str, available: Mapping[str, Sequence[int]], *ranks: int) -> GraphError:
    """The file lacks a map of this name for each of some numbers of ranks."""
    there = "; ".join(f"{each} for {', '.join(map(str, counts))}" for each, counts in available.items()) or "none"
    near = likely(name, [each for each, counts in available.items() if {*ranks} <= {*counts}])
    numbers = ",".join(map(str, ranks))
    command = f"{_TOOLS} partition add {shlex.quote(str(path))} --name {shlex.quote(name)} --ranks {numbers}"
    remedy = f"--partition {near} perhaps" if near else f"add it with `{command}`"
    for_ranks = f"{numbers} rank{'' if ranks == (1,) else 's'}"
    return GraphError(f"{path} has no map {name!r} for {for_ranks}, it has {there}; {remedy}, or leave --partition out")
