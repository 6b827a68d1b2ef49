"""The sub-command `snapshots`: fields of the nodes at many times, and what nodes have for them, into a graph file.

Arrays have the nodes in the order of the import. They are put in the order of the file block by block, checked and
hashed on the way. The new file takes the name of the old one when it is complete.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.copying import copy_datasets
from hpcgnn.graphfile.field_series import (
    GIVEN,
    NUMBER,
    POSITION,
    SPLIT,
    TIME,
    VOLUME,
    FieldSeries,
    fault_of_columns,
    name_of_field,
    write_field,
)
from hpcgnn.graphfile.hdf5 import replacing, write_attributes, write_rows, written_file
from hpcgnn.graphfile.schema import SPLITS
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.output_files import check_outputs
from hpcgnn.terminal import tell
from partition_tools.canonical.snapshots import SHARES, CheckedField, NodeRows, series_of
from partition_tools.graph.fields import load_series
from partition_tools.readers.tables.field_files import open_array
from partition_tools.workspace.budget import memory_budget
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter, ScriptReporter
from partition_tools.workspace.working import Resources

#: {option: its dataset}.
OF_NODES = {"position": POSITION, "volume": VOLUME, "given": GIVEN}
OF_TIMES = {"times": TIME, "trajectories": NUMBER, "split": SPLIT}
HELP = "add fields of the nodes at many times (snapshots of a simulation)"
DESCRIPTION = """Add fields to a graph file: arrays (T, n) or (T, n, F) of numbers at T times, with a row for each node.
Rows are in the order of the import: row i is of the node whose original_id is i. All fields of a file have the same
times.

  .npy               mapped
  HDF5, NetCDF-4     FILE:DATASET, or FILE with a dataset of the field's name
  NetCDF-3           FILE:VARIABLE, mapped
  zarr               FOLDER or FOLDER:ARRAY; needs the package zarr

--times are numbers, or START:STEP for equal steps that begin again in each trajectory (default 0:1). Snapshots of
several simulations stand one after another: --trajectories says how many each has, or has a number for each snapshot.
--split has the shares of train, val and test (default 0.8/0.1/0.1), which are whole trajectories where there are
several, else times one after another. Or it has a number for each snapshot: 0 none, 1 train, 2 val, 3 test.

  python -m partition_tools snapshots mesh.h5 velocity=u.npy pressure=run.nc:p --times 0:0.01 --position xyz.npy
  python -m partition_tools snapshots mesh.h5 T=heat.h5:temperature --trajectories 600 --split 0.9/0.05/0.05

Fields may come before or after `partition add`. The graph gets a new uuid. NaN is refused.
Peak memory: 16 n bytes, and one time of one field (or as many as a chunk of the source has, up to an eighth of the free
memory). A larger field is read several times."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("graph", type=Path, metavar="GRAPH", help="graph file, changed in place")
    parser.add_argument("fields", nargs="*", metavar="NAME=FILE[:DATASET]", help="a field and its array")
    parser.add_argument("--times", metavar="FILE|START:STEP", help="time of each snapshot")
    parser.add_argument("--trajectories", metavar="FILE|LENGTH", help="snapshots of a trajectory, or its number (T,)")
    parser.add_argument("--split", metavar="A/B/C|FILE", help=f"shares, or a split of each (default {SHARES})")
    parser.add_argument("--position", metavar="FILE", help="(n, D): the nodes in space")
    parser.add_argument("--volume", metavar="FILE", help="(n,): weights of the nodes in the loss")
    parser.add_argument("--given", metavar="FILE", help="(n,) of 0 and 1: nodes whose values are given, not judged")
    parser.add_argument("--force", action="store_true", help="replace what the file has already")


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    fields: dict[str, str] = {}
    for word in arguments.fields:
        name, equals, source = word.partition("=")
        if not equals or not source:
            raise ConfigError(f"expected NAME=FILE or NAME=FILE:DATASET for a field, got {word!r}")
        if name in fields:
            raise ConfigError(f"the field {name} is given twice, {fields[name]} and {source}; leave one out")
        fields[name] = source
    given = {name: getattr(arguments, name) for name in (*OF_TIMES, *OF_NODES)}
    tell(add_snapshots(arguments.graph, fields, **given, force=arguments.force, resources=Resources(reporter=reporter)))
    return 0


def add_snapshots(
    path: str | Path,
    fields: Mapping[str, Any],
    *,
    force: bool = False,
    resources: Resources | None = None,
    **given: Any,
) -> str:
    """Add fields (T, n) or (T, n, F) at T times to a graph file, in place; returns a line about the result.

    Args:
        path: the graph file.
        fields: {name: FILE or FILE:DATASET, or an array}, with nodes in the order of the import.
        force: replace what the file has already.
        resources: memory, and a reporter.
        given: times, trajectories and split as of the command, or arrays (T,); position (n, D), volume (n,) and given
            (n,) as files or arrays.

    Raises:
        ConfigError, FormatError, GraphError: options, files or numbers that are not sound. No file changes.
    """
    if unknown := [name for name in given if name not in (*OF_TIMES, *OF_NODES)]:
        raise ConfigError(f"unknown argument {unknown[0]!r}; expected of: {', '.join((*OF_TIMES, *OF_NODES))}")
    given = {name: value for name, value in given.items() if value is not None}
    if not fields and not given:
        raise ConfigError("there is nothing to add: expected NAME=FILE for a field, or an option with a file")
    named = {name_of_field(name): source for name, source in fields.items()}
    named |= {(OF_NODES | OF_TIMES)[option]: source for option, source in given.items()}
    resources = resources or Resources(reporter=ScriptReporter())
    check_outputs({"": path}, (), True)
    with claimed(path), GraphFile(path) as file, contextlib.ExitStack() as stack:
        if fields and (fault := fault_of_columns(dict.fromkeys(fields, 1))):
            raise ConfigError(fault)
        if not force and (there := [name for name in named if name in file]):
            raise ConfigError(f"{path} has {', '.join(there)} already; replace with --force, or leave it out")
        sources = {
            name: CheckedField(stack.enter_context(open_array(source, option)), name, file)
            for option, name, source in (
                *((option, name, given[option]) for option, name in OF_NODES.items() if option in given),
                *((name, name, source) for name, source in fields.items()),
            )
        }
        new = {name: source for name, source in sources.items() if name in fields}
        series = _series(file, new, {option: given[option] for option in OF_TIMES if option in given})
        return _written(file, sources, series, {*named}, resources)


def _series(file: GraphFile, new: Mapping[str, CheckedField], given: Mapping[str, Any]) -> FieldSeries | None:
    """All fields that the file will have, and their times; None for none."""
    old = load_series(file)
    fields = {**(old.fields if old else {}), **new}
    lengths = {name: field.shape[0] for name, field in fields.items()}
    if not fields:
        if given:
            raise ConfigError(f"--{next(iter(given))} is of fields, and {file.path} has none; give NAME=FILE as well")
        return None
    count = next(iter(lengths.values()))
    if set(lengths.values()) != {count}:
        said = ", ".join(f"{name} has {each}" for name, each in lengths.items())
        raise GraphError(f"all fields of {file.path} must have the same times, and {said}; write all of them for all")
    series = dataclasses.replace(series_of(count, given, old), fields=fields)
    for field in new.values():
        field.times = series.time
    return series


def _written(
    file: GraphFile,
    sources: Mapping[str, CheckedField],
    series: FieldSeries | None,
    gone: set[str],
    resources: Resources,
) -> str:
    """Write the file anew, with `sources`; returns a line about it. gone: the datasets that it will not keep."""
    meta, reporter, buffer_bytes = file.meta, resources.reporter, memory_budget(resources.memory) // 4
    reporter.stage(f"copying {file.path}")
    ids, digest = file.read("nodes/original_id"), hashlib.sha256(meta.uuid.encode())
    place = np.empty(len(ids), np.int64)
    place[ids] = np.arange(len(ids))
    of_times = {TIME: series.time, NUMBER: series.number, SPLIT: series.split} if series else {}
    rows = sum(source.shape[0] * source.shape[1] for source in sources.values())
    with replacing(file.path) as temporary, written_file(temporary) as (copy, check):
        known = copy_datasets(file, copy, (gone | of_times.keys()).__contains__)
        check()
        with reporter.bar(rows, f"writing {file.path}") as progress:
            for name, source in sources.items():
                placed = source.placed(place, buffer_bytes)
                if name in OF_NODES.values():
                    write_rows(copy, name, NodeRows(placed, name), check, progress, meta.num_clusters)
                else:
                    write_field(copy, name, placed, check, progress, meta.num_clusters)
                digest.update(source.digest())
        for name, values in of_times.items():
            write_rows(copy, name, values, check)
            digest.update(np.ascontiguousarray(values).data)
        changed = dataclasses.replace(
            meta,
            uuid=str(uuid.UUID(bytes=digest.digest()[:16], version=5)),
            snapshots=series.columns if series else None,
            num_dimensions=sources[POSITION].shape[2] if POSITION in sources else meta.num_dimensions,
        )
        write_attributes(copy, **{**known, **changed.attributes, "format_version": 7})
    said = ", ".join(name for name in sources if name in OF_NODES.values())
    if series is not None:
        fields = ", ".join(f"{name} ({columns})" for name, columns in series.columns.items())
        counts = ", ".join(f"{np.count_nonzero(series.split == value)} {word}" for word, value in SPLITS.items())
        said = (
            f"{fields} at {len(series.time)} times ({counts}), trajectories {len(np.unique(series.number))}"
            f"{', ' if said else ''}{said}"
        )
    return f"{file.path}: {said}, uuid {changed.uuid}"
