"""The graph file: the one place that knows its layout, and (with the checkpoint) the one that opens HDF5.

A graph is one HDF5 file with its nodes in *cluster order*: the nodes of a cluster of METIS are contiguous. A partition
for P ranks is then only a map cluster -> rank, and one file can hold many. A rank reads contiguous slabs (or chunks).

The format protects its data. Every dataset carries Fletcher32 checksums: a flipped byte is an error, not a slightly
different result. `libver="latest"` extends checksums to HDF5's own metadata, and texts have fixed length (see
`hdf5.py`). A file gets its name only when it is complete. Links that lead out of the file are refused, and so are
unknown versions.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import DTypeLike

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile import narrow
from hpcgnn.graphfile.field_series import write_field
from hpcgnn.graphfile.given_links import given_shapes, stored_links
from hpcgnn.graphfile.hdf5 import (
    SLAB_ROWS,
    Progress,
    check_dataset,
    opened,
    read_attributes,
    replacing,
    within,
    write_attributes,
    write_rows,
    written_file,
)
from hpcgnn.graphfile.ranges import CHUNK_BYTES, pieces
from hpcgnn.graphfile.refusals import no_file, no_map, unreadable
from hpcgnn.graphfile.schema import (
    NUMBERS,
    REAL,
    SPLITS,
    WHOLE,
    Csr,
    Edges,
    GraphData,
    GraphMeta,
    RowReader,
    Stored,
    layout,
    meta_of,
)

__all__ = ["FORMAT", "SLAB_ROWS", "SPLITS", "Csr", "Edges", "GraphData", "GraphFile", "GraphMeta"]
__all__ += ["add_partitionings", "check_structure", "expected_datasets", "write_graph"]

FORMAT = "hpcgnn-graph"
# Each added: 3 a task, 4 edge features, 5 hops of labels, 6 feature factors, 7 meshes. Programs read older versions.
READABLE = 2, 3, 4, 5, 6, 7
# More would not fit an index or a machine; a corrupted or hostile attribute can say anything.
_MOST_ROWS, _MOST_COLUMNS = 1 << 48, (1 << 31) - 1
_SAID = {WHOLE: "integers", REAL: "floating-point numbers", NUMBERS: "numbers"}
# (name, number of ranks, cluster to rank int32 (K,), attributes)
Partitioning = tuple[str, int, np.ndarray, Mapping[str, Any]]


def arrays_of(data: GraphData) -> Iterator[tuple[Stored, RowReader]]:
    """(where it stands, array) of each array of a graph but the graph of the clusters and held-out edges."""
    for stored in layout(data.meta):
        array: Any = data
        for name in stored.source.split("."):
            array = getattr(array, name, None)
        if hasattr(array, "shape"):
            yield stored, array if stored.dtype is None else np.asarray(array, stored.dtype)


def write_graph(
    path: str | Path,
    data: GraphData,
    partitionings: Iterable[Partitioning] = (),
    progress: Progress = lambda rows: None,
) -> None:
    """Write a whole graph file under a temporary name and rename it when complete. Raises FormatError.

    Args:
        path: the file.
        data: its contents; memory is one slab of each array beyond the caller's.
        partitionings: iterable of (name, num_ranks, cluster_to_rank int32 (K,), attributes dict).
        progress: called with the number of rows just written.
    """
    meta, graph = data.meta, data.cluster_graph
    with replacing(path) as temporary, written_file(temporary) as (file, check):
        write_attributes(file, format=FORMAT, format_version=data.version, **meta.attributes)
        for stored, array in arrays_of(data):
            halved = data.bfloat16 and stored.source == "features"
            clusters = meta.num_clusters if stored.by_cluster else 1
            write_rows(file, stored.name, array, check, progress, clusters, halved)
        for name, field in data.snapshots.fields.items() if data.snapshots else ():
            write_field(file, name, field, check, progress, meta.num_clusters)
        for name, array, about in stored_links(data.links):
            write_attributes(write_rows(file, name, array, check, progress), **about)
        if graph is not None:
            assert graph.data is not None, "edges between clusters are counted"
            for name, array in (("indptr", graph.indptr), ("indices", graph.indices), ("weight", graph.data)):
                write_rows(file, f"clusters/graph/{name}", array, check)
        _write_partitionings(file, partitionings, check)


def _write_partitionings(file: Any, partitionings: Iterable[Partitioning], check: Callable[[], None]) -> None:
    for name, num_ranks, cluster_to_rank, attributes in partitionings:
        group = file.require_group(f"partitionings/{name}")
        if str(num_ranks) in group:
            del group[str(num_ranks)]
        dataset = write_rows(group, str(num_ranks), np.asarray(cluster_to_rank, np.int32), check)
        write_attributes(dataset, **attributes)


def add_partitionings(
    path: str | Path,
    partitionings: Iterable[Partitioning],
    output: str | Path | None = None,
    removed: Iterable[str] = (),
) -> None:
    """Add or replace maps of an existing file, or of a copy `output`, and remove those NAME/P that `removed` names."""
    with replacing(output or path) as temporary:  # a copy: a crash loses nothing
        shutil.copyfile(path, temporary)
        with written_file(temporary, change=True) as (file, check):
            for name in removed:
                del file[f"partitionings/{name}"]
            _write_partitionings(file, partitionings, check)


class GraphFile:
    """A graph file opened for reading. `with GraphFile(path) as file: file.meta, file.read("nodes/labels", ranges)`.

    Not collective: every rank opens the file for itself.

    Attributes:
        meta: its root attributes; another rank may have read them from this very file.
        shared: whether all ranks have the same file open, so that one may read for all (graph/load.py).
        progress: called without arguments after every read.

    Raises:
        FormatError: naming file and dataset, if the file is missing, foreign, truncated, corrupted, or newer.
        AccessError: the file may be sound, and cannot be opened now.
    """

    def __init__(self, path: str | Path, meta: GraphMeta | None = None) -> None:
        self.path, self.progress, self._size, self.shared = Path(path), lambda: None, 0, False
        self._sound: set[str] = set()  # datasets that were checked. None stays open: each would keep a chunk.
        with contextlib.suppress(PermissionError):  # of its folder, told below
            if not self.path.is_file():
                raise no_file(self.path)
        try:
            # A cache of one chunk: rows are asked for in the order of the chunks, each dataset after the other.
            self.file = opened(self.path, rdcc_nbytes=CHUNK_BYTES)
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            self._size = self.path.stat().st_size
            self.meta = self._read_meta() if meta is None else meta
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.file.close()

    def _read_meta(self) -> GraphMeta:
        try:
            attributes = read_attributes(self.file)
        except (OSError, RuntimeError, KeyError) as error:
            raise FormatError(
                f"{self.path}: the root attributes cannot be read ({error}); the file is corrupted"
            ) from error
        if attributes.get("format") != FORMAT:
            raise FormatError(
                f"{self.path} is HDF5 but not a graph of ours: expected root attribute format={FORMAT!r}, "
                f"got {attributes.get('format')!r}; import the graph with `python -m partition_tools import`"
            )
        if attributes.get("format_version") not in READABLE:
            raise FormatError(
                f"{self.path} has format version {attributes.get('format_version')}, this program reads "
                f"versions {', '.join(map(str, READABLE))}; import the graph again, or use the program that wrote it"
            )
        feature_type = self.number_type("nodes/features") if "nodes/features" in self else "float32"
        try:
            return meta_of(attributes, feature_type)
        except (KeyError, ValueError, TypeError) as error:
            raise FormatError(
                f"{self.path}: root attribute missing or unreadable: {error}; the file is corrupted"
            ) from error

    def __contains__(self, name: str) -> bool:
        return name in self._sound or self._find(name) is not None

    def _find(self, name: str) -> Any:
        """The dataset or group, or None."""
        with self._opening(name):
            return within(self.file, name)

    @contextlib.contextmanager
    def _opening(self, name: str) -> Iterator[None]:
        """Metadata that HDF5 cannot read is a FormatError."""
        try:
            yield
        except (KeyError, OSError, RuntimeError) as error:
            raise FormatError(f"{self.path}: {name} cannot be opened ({error}); the file is corrupted") from error

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a dataset; FormatError if it is not there."""
        return self._dataset(name).shape

    def _dataset(self, name: str) -> Any:
        if name in self._sound:
            with self._opening(name):
                return self.file[name]
        dataset = self._find(name)
        if not isinstance(dataset, h5py.Dataset):
            raise FormatError(
                f"{self.path}: dataset {name} is missing; verify the file with `python -m partition_tools verify`"
            )
        with self._opening(name):
            check_dataset(self.path, self._size, name, dataset)
        self._sound.add(name)
        return dataset

    def dtype(self, name: str) -> np.dtype:
        """The type of a dataset's elements, as numpy has it."""
        return self._dataset(name).dtype

    def number_type(self, name: str) -> str:
        """The name of that type: numpy's, or 'bfloat16', which numpy has not."""
        dataset = self._dataset(name)
        return narrow.BFLOAT16 if narrow.is_bfloat16(dataset) else str(dataset.dtype)

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of a dataset."""
        dataset = self._dataset(name)
        with self._opening(name):
            return read_attributes(dataset)

    def read(
        self,
        name: str,
        ranges: Sequence[tuple[int, int]] | None = None,
        dtype: DTypeLike | None = None,
        number: np.ndarray | None = None,
        count: int | None = None,
        time: int | None = None,
    ) -> np.ndarray:
        """The rows of a dataset in `ranges` (list of (start, stop), in this order), or all of it, as one new array.

        number: int64, where each of these rows is put, of the `count` that there are then; None: one after another.
        dtype: uint16 for the bits of numbers in bfloat16, which are float32 otherwise. time: of a field, whose rows are
        those of one time.
        """
        dataset, before = self._dataset(name), () if time is None else (time,)
        nodes, *columns = dataset.shape[len(before) :]
        halved = time is None and narrow.is_bfloat16(dataset)
        as_bits = halved and dtype is not None and np.dtype(dtype) == np.uint16
        if dataset.dtype.kind not in "iufb" or (
            dtype is not None
            and not as_bits
            and dataset.dtype.kind != np.dtype(dtype).kind
            and not np.can_cast(dataset.dtype, dtype, "safe")
        ):
            raise FormatError(
                f"{self.path}: dataset {name} has type {dataset.dtype}, expected {np.dtype(dtype or float)}"
            )
        ranges = [(0, nodes)] if ranges is None else ranges
        if any(not 0 <= start <= stop <= nodes for start, stop in ranges):
            raise FormatError(
                f"{self.path}: {name} has {nodes} rows, fewer than its index asks for; the file is "
                "corrupted or incomplete"
            )
        count = sum(stop - start for start, stop in ranges) if count is None else count
        out = np.empty((count, *columns), dtype or dataset.dtype.newbyteorder("="))
        # HDF5 makes one floating-point type of another several times slower than numpy.
        between = dataset.dtype.newbyteorder("=") if out.dtype.kind == "f" else out.dtype
        row, row_bytes = 0, max(1, out[:1].nbytes)
        chunk = dataset.chunks[len(before)] if dataset.chunks else max(1, CHUNK_BYTES // row_bytes)
        try:
            for piece in pieces(ranges, chunk, chunk * row_bytes):
                wanted = slice(row, row := row + sum(stop - start for start, stop in piece.ranges))
                if halved:
                    around = narrow.read_bits(dataset, piece.start, piece.stop)
                    around = around if as_bits else narrow.widened(around)
                else:
                    around = np.empty((piece.stop - piece.start, *out.shape[1:]), between)
                    dataset.read_direct(around, np.s_[*before, piece.start : piece.stop])
                places = wanted if number is None else number[wanted]
                with np.errstate(over="ignore"):  # numbers out of range become infinite
                    out[places] = around if piece.whole else around[piece.rows()]
                self.progress()
        except (OSError, RuntimeError) as error:
            message = f"{self.path}: dataset {name} is corrupted (checksum or read error: {error})"
            raise FormatError(f"{message}; copy or make the file again") from error
        return out

    def partitionings(self) -> dict[str, list[int]]:
        """{name: sorted list of the numbers of ranks that it has a map for}."""

        def keys(name: str) -> list[str]:
            group = self._find(name)
            if not isinstance(group, h5py.Group):
                raise FormatError(f"{self.path}: {name} is not a group; the file is corrupted")
            with self._opening(name):
                return list(group)

        names = keys("partitionings") if "partitionings" in self else []
        return {name: sorted(int(key) for key in keys(f"partitionings/{name}") if key.isdigit()) for name in names}

    def cluster_graph(self) -> Csr:
        """Edge counts between clusters, a Csr with int64 data (K rows)."""
        indptr, indices, weight = (self.read(f"clusters/graph/{part}") for part in ("indptr", "indices", "weight"))
        return Csr(indptr, indices, weight, self.meta.num_clusters)

    def cluster_map(self, name: str, num_ranks: int) -> tuple[np.ndarray, dict[str, Any]]:
        """(cluster_to_rank int32 (K,), attributes dict) of one stored partitioning.

        Raises GraphError naming the maps that are there if this one is not, or if it is not a map onto the ranks.
        """
        available = self.partitionings()
        if num_ranks not in available.get(name, ()):
            raise no_map(self.path, name, available, num_ranks)
        cluster_to_rank = self.read(f"partitionings/{name}/{num_ranks}", dtype=np.int32)
        if len(cluster_to_rank) != self.meta.num_clusters or (
            len(cluster_to_rank) and not 0 <= cluster_to_rank.min() <= cluster_to_rank.max() < num_ranks
        ):
            raise GraphError(
                f"{self.path}: map {name!r} for {num_ranks} ranks is not a map of {self.meta.num_clusters} clusters "
                f"onto ranks 0..{num_ranks - 1}; partition the graph again"
            )
        return cluster_to_rank, self.attributes(f"partitionings/{name}/{num_ranks}")


def check_structure(file: GraphFile) -> None:
    """FormatError naming the first dataset that is missing or has another shape or type than the file's attributes
    promise; GraphError for a graph without nodes.

    It reads descriptions only. Together with the range checks of `graph/own_rows.py`, it protects against any file. No
    index out of range reaches a kernel, and no array is allocated that the file cannot fill.
    """
    meta = file.meta
    rows = "nodes", "edges", "clusters"
    columns = "classes", "features", "edge_types", "node_types", "edge_features", "dimensions"
    for name, most in (*((each, _MOST_ROWS) for each in rows), *((each, _MOST_COLUMNS) for each in columns)):
        if not 0 <= (value := getattr(meta, f"num_{name}")) <= most:
            raise FormatError(
                f"{file.path}: root attribute num_{name} is {value}, expected 0..{most}; the file is corrupted"
            )
    if meta.num_nodes == 0:
        raise GraphError(f"{file.path} has no nodes; expected a graph with at least one")
    for name, (shape, kinds) in expected_datasets(file).items():
        found = file.shape(name)
        if found != shape:
            raise FormatError(
                f"{file.path}: {name} has shape {found}, but the file's attributes say {shape}; it is corrupted or "
                "incomplete, import the graph again"
            )
        if file.dtype(name).kind not in kinds:
            raise FormatError(
                f"{file.path}: {name} has type {file.dtype(name)}, expected {_SAID[kinds]}; import the graph again"
            )


def expected_datasets(file: GraphFile) -> dict[str, tuple[tuple[int, ...], str]]:
    """{dataset: (shape, kinds of its type)} of a file, by its attributes and the lengths that it is free to have."""

    def sizes(shape: tuple[int | str, ...]) -> tuple[int, ...]:
        return sum(((*file.shape(size), 0)[:1] if isinstance(size, str) else (size,) for size in shape), ())

    wanted = [stored for stored in layout(file.meta) if not stored.optional or stored.name in file]
    found = {stored.name: (sizes(stored.shape), stored.kinds) for stored in wanted}
    return found | {name: (shape, WHOLE) for name, shape in given_shapes(file).items()}
