"""The graph file: the one place that knows its layout, and (with the checkpoint) the one that opens HDF5.

A graph is one HDF5 file with its nodes in *cluster order*: METIS splits the graph into K clusters and the nodes of a
cluster are contiguous. A partition for P ranks is then only a map cluster -> rank, and one file can hold many. A rank
reads contiguous slabs for any P (if a map scatters nodes, the chunks that hold them).

The format protects its data. Every dataset carries Fletcher32 checksums: a flipped byte is an error, not a slightly
different result. `libver="latest"` extends checksums to HDF5's own metadata, and texts have fixed length (see
`attributes.py`). A file gets its name only when it is complete. Links that lead out of the file are refused, and so are
unknown versions.
"""

import contextlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile import bfloat16
from hpcgnn.graphfile.access import opened
from hpcgnn.graphfile.attributes import read_attributes, write_attributes
from hpcgnn.graphfile.chunks import CHUNK_BYTES, SLAB_ROWS, Progress, most_chunks, write_csr, write_rows
from hpcgnn.graphfile.given_links import stored_links
from hpcgnn.graphfile.labels import MULTILABEL, REGRESSION
from hpcgnn.graphfile.own_ids import NUMBERS, OFFSETS, TEXT
from hpcgnn.graphfile.ranges import MOST_CHUNKS, pieces
from hpcgnn.graphfile.scales import SCALES
from hpcgnn.graphfile.schema import SPLITS, Csr, Edges, GraphData, GraphMeta, Words, meta_of
from hpcgnn.graphfile.structure import check_dataset
from hpcgnn.graphfile.writing import writing, written_file
from hpcgnn.records import replaced_by

__all__ = ["FORMAT", "SLAB_ROWS", "SPLITS", "VERSION", "Csr", "Edges", "GraphData", "GraphFile", "GraphMeta"]
__all__ += ["add_partitionings", "replacing", "write_graph"]

FORMAT = "hpcgnn-graph"
# Each added: 3 a task, 4 edge features, 5 hops of labels, 6 feature factors. Older programs can read older versions.
READABLE = 2, 3, 4, 5, 6
VERSION = READABLE[-1]
# Size of one read: large enough for full speed, small enough to show progress.
PIECE_BYTES = 64 << 20
# (name, number of ranks, cluster to rank int32 (K,), attributes)
Partitioning = tuple[str, int, np.ndarray, Mapping[str, Any]]


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[str]:
    """Yield a temporary path in the folder of `path`; rename it to `path` if the body succeeds, else remove it."""
    with writing(path), replaced_by(path) as temporary:
        yield temporary


def _version(data: GraphData) -> int:
    """The oldest format version that has all that the graph has."""
    has = data.task == REGRESSION, data.edge_features is not None, data.num_label_parts > 0
    needed = zip((3, 4, 5, 6), (*has, data.feature_scales is not None), strict=True)
    return max((version for version, present in needed if present), default=2)


def write_graph(
    path: str | Path, data: GraphData, partitionings: Iterable[Partitioning] = (), progress: Progress | None = None
) -> None:
    """Write a whole graph file under a temporary name and rename it when complete. Raises FormatError.

    Args:
        path: the file.
        data: its contents; memory is one slab of each array beyond the caller's.
        partitionings: iterable of (name, num_ranks, cluster_to_rank int32 (K,), attributes dict).
        progress: called with the number of rows just written.
    """
    n, clusters = data.num_nodes, len(data.cluster_offsets) - 1
    features = data.features
    width = 0 if features is None else features.num_columns if isinstance(features, Csr) else features.shape[1]
    with replacing(path) as temporary, written_file(temporary) as (file, check):
        write_attributes(
            file,
            format=FORMAT,
            format_version=_version(data),
            uuid=data.uuid,
            num_nodes=n,
            num_edges=int(data.edges.indptr[-1]),
            num_clusters=clusters,
            num_classes=data.num_classes,
            num_features=width,
            num_self_loops=data.num_self_loops,
            undirected=data.edges_out is None,
            multi_label=data.task == MULTILABEL,
            **({"task": data.task} if data.task == REGRESSION else {}),
            **({} if data.edge_features is None else {"num_edge_features": data.edge_features.shape[1]}),
            **({} if data.num_feature_parts == 1 else {"num_feature_parts": data.num_feature_parts}),
            **({"num_label_parts": data.num_label_parts} if data.num_label_parts else {}),
            **({"negatives": data.negatives} if data.links else {}),
            sparse_features=isinstance(features, Csr),
            weighted=data.edges.weight is not None,
            typed=data.edges.type is not None,
            source=data.source,
            seed=data.seed,
            versions=json.dumps(data.versions, sort_keys=True),
            num_edge_types=data.num_edge_types,
            num_node_types=data.num_node_types,
            type_names=json.dumps(data.type_names, sort_keys=True),
        )
        for suffix, edges in (("", data.edges), ("_out", data.edges_out)):
            if edges is not None:
                write_rows(
                    file, f"topology{suffix}/indptr", np.asarray(edges.indptr, np.int64), check, progress, clusters
                )
                write_rows(file, f"topology{suffix}/indices", edges.indices, check, progress, clusters)
                for name in ("weight", "type"):
                    if getattr(edges, name) is not None:
                        write_rows(file, f"edges{suffix}/{name}", getattr(edges, name), check, progress, clusters)
        if data.edge_features is not None:
            write_rows(file, "edges/features", data.edge_features, check, progress, clusters)
        if isinstance(features, Csr):
            write_csr(file, "nodes/features_csr", features, "data", check, progress, clusters)
        elif features is not None:
            write_rows(file, "nodes/features", features, check, progress, clusters, data.bfloat16)
            if data.feature_scales is not None:
                write_rows(file, SCALES, data.feature_scales, check)
        write_rows(file, "nodes/labels", data.labels, check, progress, clusters)
        write_rows(file, "nodes/split", data.split, check, progress, clusters)
        write_rows(file, "nodes/original_id", data.original_id, check, progress, clusters)
        if data.node_type is not None:
            write_rows(file, "nodes/type", np.asarray(data.node_type, np.int32), check, progress, clusters)
        if isinstance(data.ids, Words):
            write_rows(file, OFFSETS, np.asarray(data.ids.offsets, np.int64), check, progress)
            write_rows(file, TEXT, data.ids.text, check)
        elif data.ids is not None:
            write_rows(file, NUMBERS, data.ids, check, progress)
        for name, array, about in stored_links(data.links):
            write_attributes(write_rows(file, name, array, check, progress), **about)
        write_rows(file, "clusters/offsets", np.asarray(data.cluster_offsets, np.int64), check, progress)
        if data.cluster_graph is not None:
            write_csr(file, "clusters/graph", data.cluster_graph, "weight", check)
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
        shared: whether all ranks have the same file open, so that one may read for all (graph/opening.py).
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
                raise FormatError(f"no graph file at {self.path}: expected an HDF5 file of `python -m partition_tools`")
        try:
            # A cache of one chunk: rows are asked for in the order of the chunks, each dataset after the other.
            self.file = opened(self.path, rdcc_nbytes=CHUNK_BYTES)
        except OSError as error:
            raise FormatError(
                f"{self.path} is not a readable HDF5 file (truncated, corrupted or foreign): {error}; make it "
                "again with `python -m partition_tools`"
            ) from error
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
        dense = "nodes/features" in self
        try:
            return meta_of(attributes, self.number_type("nodes/features") if dense else "float32")
        except (KeyError, ValueError, TypeError) as error:
            raise FormatError(
                f"{self.path}: root attribute missing or unreadable: {error}; the file is corrupted"
            ) from error

    def __contains__(self, name: str) -> bool:
        return name in self._sound or self._find(name) is not None

    def _find(self, name: str) -> Any:
        """The dataset, or None. Links are checked part by part: one that leaves the file is refused."""
        node = self.file
        for part in name.split("/"):
            with self._opening(name):
                link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
                if link is None:
                    return None
                if isinstance(link, (h5py.ExternalLink, h5py.SoftLink)):
                    raise FormatError(
                        f"{self.path}: {name} is a link ({part}); links are refused, copy the data into the file"
                    )
                node = node[part]
        if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
            raise FormatError(
                f"{self.path}: {name} keeps its data in other files; that is refused, copy it into the file"
            )
        return node

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
        return bfloat16.NAME if bfloat16.is_bfloat16(dataset) else str(dataset.dtype)

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of a dataset."""
        dataset = self._dataset(name)
        with self._opening(name):
            return read_attributes(dataset)

    def read(
        self,
        name: str,
        ranges: Sequence[tuple[int, int]] | None = None,
        dtype: np.typing.DTypeLike | None = None,
        number: np.ndarray | None = None,
        count: int | None = None,
    ) -> np.ndarray:
        """The rows of a dataset in `ranges` (list of (start, stop), in this order), or all of it, as one new array.

        number: int64, where each of these rows is put, of the `count` that there are then; None: one after another.
        dtype: uint16 for the bits of numbers in bfloat16, which are float32 otherwise.
        """
        dataset = self._dataset(name)
        halved = bfloat16.is_bfloat16(dataset)
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
        ranges = [(0, dataset.shape[0])] if ranges is None else ranges
        if any(not 0 <= start <= stop <= dataset.shape[0] for start, stop in ranges):
            raise FormatError(
                f"{self.path}: {name} has {dataset.shape[0]} rows, fewer than its index asks for; the file is "
                "corrupted or incomplete"
            )
        count = sum(stop - start for start, stop in ranges) if count is None else count
        out = np.empty((count, *dataset.shape[1:]), dtype or dataset.dtype.newbyteorder("="))
        # HDF5 makes one floating-point type of another several times slower than numpy.
        direct = number is None and not halved and (out.dtype.kind != "f" or out.dtype == dataset.dtype)
        between = dataset.dtype.newbyteorder("=") if out.dtype.kind == "f" else out.dtype
        row, row_bytes = 0, max(1, out[:1].nbytes)
        chunk = dataset.chunks[0] if dataset.chunks else max(1, CHUNK_BYTES // row_bytes)
        most = max(1, (PIECE_BYTES if direct else MOST_CHUNKS * CHUNK_BYTES) // row_bytes)
        try:
            for piece in pieces(ranges, chunk, most, most_chunks(chunk * row_bytes)):
                wanted = np.s_[row : row + piece.num_rows]
                if direct and piece.whole:
                    dataset.read_direct(out, np.s_[piece.start : piece.stop], wanted)
                else:
                    if halved:
                        around = bfloat16.read_bits(dataset, piece.start, piece.stop)
                        around = around if as_bits else bfloat16.widened(around)
                    else:
                        around = np.empty((piece.stop - piece.start, *out.shape[1:]), between)
                        dataset.read_direct(around, np.s_[piece.start : piece.stop])
                    with np.errstate(over="ignore"):  # numbers out of range become infinite
                        out[wanted if number is None else number[wanted]] = (
                            around if piece.whole else around[piece.rows()]
                        )
                row = wanted.stop
                self.progress()
        except (OSError, RuntimeError) as error:
            message = f"{self.path}: dataset {name} is corrupted (checksum or read error: {error})"
            raise FormatError(f"{message}; copy or make the file again") from error
        return out

    def partitionings(self) -> dict[str, list[int]]:
        """{name: sorted list of the numbers of ranks that it has a map for}."""
        names = self._keys("partitionings") if "partitionings" in self else []
        of_name = {name: self._keys(f"partitionings/{name}") for name in names}
        return {name: sorted(int(ranks) for ranks in keys if ranks.isdigit()) for name, keys in of_name.items()}

    def _keys(self, name: str) -> list[str]:
        group = self._find(name)
        if not isinstance(group, h5py.Group):
            raise FormatError(f"{self.path}: {name} is not a group; the file is corrupted")
        with self._opening(name):
            return list(group)

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
            command = f"python -m partition_tools partition add {shlex.quote(str(self.path))} --ranks {num_ranks}"
            raise GraphError(
                f"{self.path} has no map {name!r} for {num_ranks} ranks; it has {available or 'none'}; add it with "
                f"`{command}`, or let training do so with --auto-partition"
            )
        cluster_to_rank = self.read(f"partitionings/{name}/{num_ranks}", dtype=np.int32)
        if len(cluster_to_rank) != self.meta.num_clusters or (
            len(cluster_to_rank) and not 0 <= cluster_to_rank.min() <= cluster_to_rank.max() < num_ranks
        ):
            raise GraphError(
                f"{self.path}: map {name!r} for {num_ranks} ranks is not a map of {self.meta.num_clusters} clusters "
                f"onto ranks 0..{num_ranks - 1}; partition the graph again"
            )
        return cluster_to_rank, self.attributes(f"partitionings/{name}/{num_ranks}")
