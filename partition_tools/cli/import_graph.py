"""The sub-command `import`: a graph in someone else's format becomes a graph file, once."""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.graphfile.labels import LABELS
from hpcgnn.graphfile.schema import GraphData
from hpcgnn.output_files import check_outputs, files_below
from hpcgnn.terminal import tell
from partition_tools.canonical.canonical import ImportOptions, canonical, versions
from partition_tools.canonical.features import DTYPES
from partition_tools.cli.partition_graph import given_map
from partition_tools.graph.writing import summary, write_with_bar
from partition_tools.readers.datasets import listing, named
from partition_tools.readers.datasets.dataset import Dataset, Reader
from partition_tools.readers.formats import SOURCES, format_of
from partition_tools.readers.tables.packed import refuse_packed
from partition_tools.readers.tables.tables import AUTO, ROWS, TableOptions
from partition_tools.readers.tables.text import check_readable_twice
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import fingerprint
from partition_tools.workspace.working import add_memory_options, working

Fields = TypeVar("Fields", ImportOptions, TableOptions)

HELP = "convert a graph (npz, edge list, Matrix Market, OGB, SciPy, PyG, DGL and others) to a graph file"
DESCRIPTION = """Read a graph and write it as one HDF5 graph file, nodes in the order of the source, not yet clustered.
An edge goes from its source to its destination, and a node aggregates over its in-edges. A graph that is its own
transpose in pattern, multiplicity, weights and types is stored as undirected, any other with both directions.

Formats (guessed from the path where --format is not given):
  npz       edge_index (2, E), x or x_indptr/x_indices/x_data/x_shape, y  or  src, dst, feat, label; with train_mask,
            val_mask, test_mask (or train_idx, ...), num_classes, edge_weight, edge_type, edge_attr (features of edges),
            node_type where there are any; val_edge, val_edge_neg, test_edge, ... for held-out edges; other arrays are
            named, and refused (see --ignore) where a graph without them means something else
  edgelist  text (.csv, .tsv, .txt, also .gz) or .parquet: columns src,dst and perhaps weight,type by their heading.
            Without a heading there are two columns, src and dst. Others need --edge-columns.
            Features, labels, splits, node types in tables beside it
  mtx       Matrix Market (.mtx, .mtx.gz): row -> column; the same tables
  scipy     .npz of scipy.sparse.save_npz: row -> column, weights unless all are 1; the same tables
  metis     .graph of METIS, Chaco, KaHIP; the same tables
  pyg       .pt of torch.save: a Data object of PyG, processed/data.pt of a data set, or a dict of tensors with the
            names of npz. No code of the file is run
  distdgl   a folder of DGL's partition_graph (DistDGL, GraphStorm, SAR): NAME.json, part0/graph.dgl, …; its parts
            become a map of the file. DGL is not needed
  npz       also a folder of .npy files of these names
  ogb       the folder of an OGB node property prediction data set: raw/*.csv.gz or raw/data.npz, split/<type>/*.csv.gz;
            heterogeneous ones too (ogbn-mag), whose node types and relations become types of nodes and edges; or of a
            link property prediction one, whose split/<type>/{valid,test}.pt hold edges apart and their negatives

A published data set goes by its name. --dataset ogbn-arxiv --root DIR reads its files from the folder of its download,
and --dataset list shows all names. Nothing is downloaded.

Peak memory: --memory, and 40 bytes per node; or 40 E + 20 n bytes and the features, if that is less. Edge weights,
types or features add 40 E, the text parser 32 E; with --add-reverse E counts the reverse edges too. Larger data are
mapped from the input, or go through files of --scratch: 8 to 40 E bytes, and 8 n F for text and compressed features.
Words for node ids, held-out edges, tables, and the formats from mtx to distdgl are read at once."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("input", type=Path, metavar="INPUT", nargs="?")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="graph file to write")
    parser.add_argument("--format", "--from", metavar="NAME", help="format of INPUT (default: by its name)")
    parser.add_argument(
        "--dataset",
        metavar="NAME",
        action=_DatasetAction,
        help="a published data set, in place of INPUT; list shows their names",
    )
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="where its files lie, or a directory above; nothing is downloaded"
    )
    parser.add_argument(
        "--undirected",
        action="store_true",
        help="add missing reverse edges; then parallel edges of one type are merged, weights averaged "
        "(a graph that is symmetric already stays as it is)",
    )
    parser.add_argument(
        "--add-reverse",
        action="store_true",
        help="for graphs with edge types 0..R-1: add the reverse of each edge, as type R + its type",
    )
    parser.add_argument(
        "--self-loops",
        choices=("add", "remove", "keep"),
        default="keep",
        help="add: one to each node without (weight 1, a type of its own)",
    )
    parser.add_argument(
        "--drop-duplicates",
        action="store_true",
        help="of edges with the same ends and type keep one (with weights, the lightest)",
    )
    parser.add_argument("--drop-weights", action="store_true", help="ignore the edge weights of the input")
    parser.add_argument(
        "--row-normalize",
        action="store_true",
        help="divide each node's features by their sum (of absolute values), as is usual for Cora",
    )
    parser.add_argument(
        "--standardize", action="store_true", help="scale feature columns by the training nodes' mean and deviation"
    )
    parser.add_argument("--feature-dtype", choices=tuple(DTYPES), default="fp32")
    parser.add_argument(
        "--task",
        choices=("auto", *LABELS),
        default="auto",
        help="task of the labels: one class per node, several 0/1 labels, or real numbers (regression). auto: "
        "classes or 0/1 labels. Regression has one column or several, NaN or nothing for unknown numbers.",
    )
    parser.add_argument(
        "--classes",
        "--num-classes",
        dest="num_classes",
        type=int,
        metavar="C",
        help="number of classes (default: the largest label + 1, refused if most classes would be empty). Words are "
        "numbered in their sorted order and kept as names.",
    )
    parser.add_argument("--name", help="name of the graph in the file (default: of the input)")
    for split in ("train", "val", "test"):
        parser.add_argument(
            f"--{split}", type=float, metavar="X", help=f"fraction of the labelled nodes for a random {split} split"
        )
    parser.add_argument("--resplit", action="store_true", help="let the random split replace the input's own")
    parser.add_argument("--seed", type=int, default=0, help="of the random split (default 0)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    add_memory_options(parser)
    archives = parser.add_argument_group(".npz archives")
    archives.add_argument(
        "--ignore",
        metavar="NAMES",
        type=_names,
        default=(),
        help="arrays to leave out, separated by commas; such as edge_label, which is refused as it would be lost",
    )
    archives.add_argument(
        "--rename",
        metavar="OLD=NEW",
        type=_pairs,
        default=(),
        help="names of arrays, separated by commas, such as venue=label,emb=feat",
    )
    archives.add_argument(
        "--split-column",
        type=int,
        metavar="K",
        help="column (from 0) of masks of shape (n, several), which hold one split each",
    )
    tables = parser.add_argument_group("edge lists and Matrix Market")
    tables.add_argument(
        "--edge-columns",
        metavar="NAMES",
        type=_names,
        help="meanings of the edge list's columns: src, dst, weight, type, feature and _ (ignored). Default: its "
        "heading; without one, two columns src,dst",
    )
    tables.add_argument(
        "--edge-features",
        metavar="NAMES|FILE",
        type=_columns_or_file,
        help="features of edges: names of the edge list's columns, with commas, or a .npy file with a row for "
        "each edge",
    )
    tables.add_argument(
        "--heading",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the edge list's first line is one (default: if it has no number in it, or names source and destination)",
    )
    for name, what in (
        ("features", "one row per node"),
        (
            "labels",
            "one column of classes (numbers from 0, or words), several of 0/1, or, with --task regression, numbers",
        ),
        ("splits", "train, val, test or empty"),
        ("node-types", "numbers from 0, or words under a heading"),
    ):
        tables.add_argument(
            f"--{name}",
            type=Path,
            metavar="FILE",
            help=f"table (CSV, TSV, text, .gz, .parquet, .npy) of {name.replace('-', ' ')}: {what}. "
            f"Rows: in node order, or by a column id",
        )
    tables.add_argument(
        "--rows",
        choices=ROWS,
        default=AUTO,
        help="node of each row of a table: by the ids in the first column, by position, or (auto) by a column id if "
        "there is one",
    )
    tables.add_argument(
        "--relabel",
        action="store_true",
        help="node ids are any numbers or words; nodes are numbered in the sorted order of their ids. "
        "Tables need a column id then, or --node-ids",
    )
    tables.add_argument(
        "--node-ids",
        type=Path,
        metavar="FILE",
        help="the ids of all nodes (text, .npy), one per row: row k of each table without a column id "
        "belongs to id k; implies --relabel",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(part.strip() for part in pair.split("=")) for pair in text.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, such as venue=label, got {text}")
    return tuple((old, new) for old, new in pairs)


def _columns_or_file(text: str) -> Path | tuple[str, ...]:
    return Path(text) if text.endswith(".npy") else _names(text)


class _DatasetAction(argparse.Action):
    """--dataset NAME, or --dataset list, which shows the names and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, value: Any, option: str | None = None) -> None:
        if value == "list":
            print(listing())
            parser.exit()
        setattr(namespace, self.dest, value)


def run(arguments: argparse.Namespace, reporter: Reporter) -> int:
    """The sub-command itself; returns the exit code."""
    if (arguments.input is None) == (arguments.dataset is None):
        raise ConfigError("expected either INPUT or --dataset NAME --root DIR")
    if arguments.dataset is not None and (arguments.root is None or arguments.format is not None):
        raise ConfigError("--dataset needs --root DIR, the directory of its files, and takes no --format")
    if arguments.dataset is None and arguments.root is not None:
        raise ConfigError("--root is for --dataset NAME")
    given = (arguments.train, arguments.val, arguments.test)
    fractions = _fractions(*given) if any(part is not None for part in given) else None
    if arguments.resplit and fractions is None:
        raise ConfigError("--resplit needs the fractions of the new split: --train, --val or --test")
    if not 0 <= arguments.seed < 2**63:
        raise ConfigError(f"--seed must be from 0 to 2^63 - 1, got {arguments.seed}")
    options = _fields(ImportOptions, arguments, fractions=fractions)
    tables = _fields(TableOptions, arguments)
    data = import_graph(
        arguments.root if arguments.input is None else arguments.input,
        arguments.output,
        format=arguments.format,
        dataset=arguments.dataset,
        options=options,
        tables=tables,
        force=arguments.force,
        reporter=reporter,
        memory=arguments.memory,
        scratch=arguments.scratch,
    )
    tell(summary(arguments.output, data))
    return 0


def _fields(kind: type[Fields], arguments: argparse.Namespace, **given: Any) -> Fields:
    """A dataclass with its fields from `arguments` by name, except the given ones."""
    return kind(
        **{field.name: getattr(arguments, field.name) for field in fields(kind) if field.name not in given}, **given
    )


def _fractions(train: float | None, val: float | None, test: float | None) -> tuple[float, float, float]:
    """The fractions left out: nothing for train and val, the rest for test."""
    train, val = train or 0.0, val or 0.0
    fractions = (train, val, 1 - train - val if test is None else test)
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ConfigError(f"--train, --val and --test must be from 0 to 1 and sum to at most 1, got {fractions}")
    return fractions


def import_graph(  # noqa: PLR0913 - callers name them
    path: str | Path,
    output: str | Path,
    *,
    format: str | None = None,
    dataset: str | None = None,
    options: ImportOptions = ImportOptions(),
    tables: TableOptions = TableOptions(),
    force: bool = False,
    reporter: Reporter | None = None,
    memory: int | None = None,
    scratch: str | Path | None = None,
) -> GraphData:
    """Read `path` in a format of `SOURCES` (None: guessed) and write the graph file `output`; returns its `GraphData`.

    Args:
        path: the input; with `dataset`, the directory of its files, or one above.
        output: the graph file.
        dataset: a name of `DATASETS`.
        memory: bytes to work in (None: half of the free memory).
        scratch: the parent of the scratch directory (None: the output's folder). The import removes that directory at
            the end. If it is killed, the same call continues from it.

    Raises:
        FormatError, GraphError: the input cannot be read, or the graph is not sound. Nothing is written then.
    """
    path, output, reporter = Path(path), Path(output), reporter or Reporter()
    known = None if dataset is None else named(dataset)
    if known is not None:
        path = known.find(path)
    inputs = [path] if known is None else known.inputs(path)
    check_outputs({"-o": output}, _files_read(inputs, tables), force)
    for each in _files_read(inputs, tables):
        check_readable_twice(Path(each))
        refuse_packed(Path(each))
    with claimed(output):
        if known is None:
            name = format_of(path, format)
            read: Reader = SOURCES[name].read
        else:
            name, read, options = known.name, known.load, _as_published(known, options, reporter)
        identity = _identity(inputs, name, options, tables)
        with working(output, scratch, identity, memory, reporter) as work:
            reporter.stage(f"reading {path} as {name}")
            try:
                raw = read(path, tables, work)
            except OSError as error:
                raise FormatError(f"cannot read {error.filename or path}: {error.strerror or error}") from error
            data = canonical(raw, options, work)
            write_with_bar(output, data, reporter=reporter)
        if raw.parts is not None:
            given_map(output, raw.parts, name, reporter)
        return data


def _as_published(known: Dataset, options: ImportOptions, reporter: Reporter) -> ImportOptions:
    """The options, with reverse edges where one direction of each is published."""
    if known.undirected and not options.undirected and not options.add_reverse:
        reporter.stage(f"{known.name} is published with one direction of each edge: reverse edges are added")
        return replace(options, undirected=True)
    asked = options.undirected, options.add_reverse, options.self_loops != "keep"
    if known.usual and not any(asked):
        reporter.stage(f"{known.name} comes as it is published; usually it is imported with {known.usual}")
    return options


def _files_read(inputs: Iterable[Path], tables: TableOptions) -> Iterator[str | Path]:
    """The files of an import; an input folder's own files. No folder format has HDF5 in its folder: such a file is of
    an earlier import.
    """
    for path in inputs:
        yield from files_below(path, (".h5", ".hdf5")) if path.is_dir() else [path]
    yield from (value for name, value in vars(tables).items() if name != "rows" and isinstance(value, (str, Path)))


def _identity(inputs: Iterable[Path], name: str, options: ImportOptions, tables: TableOptions) -> dict[str, Any]:
    """The facts that decide the files of the scratch directory. The next call may have less memory."""
    beside = [value for value in asdict(tables).values() if isinstance(value, Path) and value.exists()]
    return {
        "format": name,
        "options": asdict(options),
        "tables": asdict(tables),
        "inputs": [fingerprint(each) for each in (*inputs, *beside)],
        "versions": versions(),
    }
