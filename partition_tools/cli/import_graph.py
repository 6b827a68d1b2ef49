"""The sub-command `import`: a graph in someone else's format becomes a graph file, once."""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.graphfile.schema import GraphData
from hpcgnn.output_files import check_outputs, files_below
from hpcgnn.terminal import tell
from partition_tools.canonical.canonical import ImportOptions, canonical
from partition_tools.canonical.splits import Fractions
from partition_tools.cli.partition_graph import given_map
from partition_tools.graph.writing import summary, write_with_bar
from partition_tools.readers.formats import KEYS as KEYS_OF_FORMATS
from partition_tools.readers.formats import format_of, options_of
from partition_tools.readers.sources import SOURCES
from partition_tools.readers.tables.refused import check_file
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.settings import declared, made, values_of
from partition_tools.workspace.working import Resources, add_memory_options, working

#: Every key of `--set`.
KEYS = {**declared([ImportOptions, Fractions]), **KEYS_OF_FORMATS}
HELP = "convert a graph (edge list, npz, Matrix Market, METIS, SciPy, OGB, meshes) to a graph file"
DESCRIPTION = """Read a graph and write it as one HDF5 graph file, nodes in the order of the source, not yet clustered.
An edge goes from its source to its destination, and a node aggregates over its in-edges. A graph that is its own
transpose in pattern, multiplicity, weights and types is stored as undirected, any other with both directions.

  edgelist  text (.csv, .tsv, .txt, also .gz) or .parquet: columns src,dst and perhaps weight,type
  npz       an archive, or a folder of .npy files: edge_index or src,dst; x, y, train_mask, ...
  mtx       Matrix Market (.mtx, .mtx.gz): row -> column
  scipy     .npz of scipy.sparse.save_npz: row -> column
  metis     .graph of METIS
  ogb       the folder of an OGB data set
  distdgl   a folder of DGL's partition_graph
  nekrs     a folder of nekRS-ML's plugin gnn: NAME_rank_R_size_P.bin of each rank; fields become snapshots
  mesh      .vtu, .vtk, .xdmf with its time series, .msh, .exo (extra mesh): edges of the cells; fields of points
            become snapshots

Tables of nodes (.csv, .parquet, .npy) stand beside an edge list, a matrix and a METIS graph; a column id names the node
of a row. docs/importing.md has recipes, docs/options.md all keys of --set.
Peak memory: --memory, and 40 bytes per node; larger data are mapped, or go through files of --scratch."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("input", type=Path, metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="graph file to write")
    parser.add_argument("--format", choices=tuple(SOURCES), help="format of INPUT (default: by its name)")
    for name in ("features", "labels", "splits"):
        _flag(parser, f"--{name}", f"tables.{name}", type=Path, metavar="FILE")
    _flag(parser, "--relabel", "tables.relabel", action="store_const", const=True)
    _flag(parser, "--undirected", "edges.undirected", action="store_const", const=True)
    for name in ("train", "val"):
        _flag(parser, f"--{name}", f"split.{name}", type=float, metavar="X")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set any key; repeatable")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    add_memory_options(parser)


def _flag(parser: argparse.ArgumentParser, flag: str, name: str, **more: Any) -> None:
    """A flag for a key."""
    parser.add_argument(flag, dest=name, help=KEYS[name].metadata["help"], **more)


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    given = {name: value for name, value in vars(arguments).items() if name in KEYS and value is not None}
    for name, value in values_of(arguments.set, KEYS).items():
        if given.setdefault(name, value) != value:
            raise ConfigError(f"--set {name}={value}: the key is given twice, also as {given[name]}; leave one out")
    options = made(ImportOptions, given, fractions=made(Fractions, given).of_splits())
    source = format_of(arguments.input, arguments.format)
    data = import_graph(
        arguments.input,
        arguments.output,
        format=source.NAME,
        options=options,
        tables=options_of(source, {name: value for name, value in given.items() if name in KEYS_OF_FORMATS}),
        force=arguments.force,
        resources=Resources(arguments.memory, arguments.scratch, reporter),
    )
    tell(summary(arguments.output, data))
    return 0


def import_graph(
    path: str | Path,
    output: str | Path,
    *,
    format: str | None = None,
    options: ImportOptions = ImportOptions(),
    tables: Any = None,
    force: bool = False,
    resources: Resources | None = None,
) -> GraphData:
    """Read `path` in a format of `SOURCES` (None: guessed) and write the graph file `output`; returns its `GraphData`.

    Args:
        tables: options of the format: `TableOptions`, `NodeTables` of matrices, or `ArrayOptions` of archives.
        resources: memory and scratch directory. The import removes that directory at the end.

    Raises:
        FormatError, GraphError, ConfigError: the input cannot be read, or the graph is not sound. Nothing is written.
    """
    path, output, resources = Path(path), Path(output), resources or Resources()
    source = format_of(path, format)
    own = source.OPTIONS() if tables is None else tables
    if not isinstance(own, source.OPTIONS):
        raise ConfigError(f"{type(own).__name__} are no options of the format {source.NAME}")
    read = [*_files(path), *(value for value in vars(own).values() if isinstance(value, Path))]
    others = getattr(source, "companions", lambda path: ())
    check_outputs({"-o": output}, itertools.chain(read, others(path)), force)
    for each in read:
        check_file(Path(each))
    with claimed(output):
        with working(output, resources) as work:
            work.reporter.stage(f"reading {path} as {source.NAME}")
            try:
                raw = source.read(path, own, work)
            except OSError as error:
                raise FormatError(f"cannot read {error.filename or path}: {error.strerror or error}") from error
            data = canonical(raw, options, work)
            write_with_bar(output, data, reporter=work.reporter)
        if raw.parts is not None:
            given_map(output, raw.parts, source.NAME, resources.reporter)
        return data


def _files(path: Path) -> Iterator[str | Path]:
    """The files of an input. No folder format has HDF5 in its folder: such a file is of an earlier import."""
    yield from files_below(path, (".h5", ".hdf5")) if path.is_dir() else [path]
