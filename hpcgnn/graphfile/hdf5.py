"""HDF5 files: opened to be read, written to a disk that may be full, and their attributes and datasets.

A file that may be sound, and cannot be opened now, is never called damaged.

When a write fails inside the HDF5 library, it cannot close the file any more and crashes the interpreter, there or at
its end (seen with 1.14: a segmentation fault instead of "no space left on device"). So the library writes through an
object of ours. The object stores the first failure and reports success to the library. `check` then raises the failure
to the caller.

By default, h5py writes texts with variable length. HDF5 keeps those in a "global heap", the one part of its metadata
without a checksum: one flipped bit in it held the library in an endless loop (HDF5 2.0). So texts are written with
their length, which leaves them in the checksummed object header. Other texts are refused without being read.

HDF5 reads, checks and writes whole chunks, and every rank that needs a row of a chunk reads all of it. Chunks of 1 MiB
are read at full speed. But if clusters are small and a map scatters them, every rank has one in every chunk: 128 ranks
read an R-MAT graph 85 times. So a chunk is no larger than a mean cluster, down to a page.
"""

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcgnn.errors import AccessError, FormatError
from hpcgnn.graphfile.narrow import itemsize, stored_type, write_rounded
from hpcgnn.graphfile.ranges import CHUNK_BYTES
from hpcgnn.records import replaced_by

SLAB_ROWS = 1 << 16
LARGEST_ATTRIBUTE = 1 << 24  # bytes; names of types and the options of a run take some thousand
LEAST_CHUNK_BYTES = 1 << 12
# Filters that are part of every HDF5 (deflate, shuffle, Fletcher32), and how many times larger than stored the data may
# be.
_FILTERS = {1: 1100, 2: 1, 3: 1}
# Called with a number of rows that are done.
Progress = Callable[[int], object]


def opened(path: str | Path, **options: Any) -> Any:
    """The h5py.File at `path`, open to be read. options: of h5py.File.

    Raises AccessError where another program or a permission stands in the way, and OSError where the file is missing or
    no whole HDF5 file.
    """
    try:
        return h5py.File(path, "r", libver="latest", locking="best-effort", **options)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if "already open for write" in str(error):
            raise AccessError(
                f"a program that had {path} open for writing was killed, or has it open still: close it there, or "
                f"clear its mark with `h5clear -s {path}`, and verify a graph file then"
            ) from error
        if isinstance(error, BlockingIOError):
            raise AccessError(
                f"{path} is open for writing in another program, such as a notebook or HDFView: close it there"
            ) from error
        if error.errno:  # the system's, where HDF5 itself has none
            raise AccessError(
                f"{path} may not be read: {os.strerror(error.errno)}; ask its owner, or look at the file system"
            ) from error
        raise


class _Deferred(io.FileIO):
    """A file whose writes never fail: `failure` is the first OSError, and later writes are thrown away."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while self.failure is None and len(rest):
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.failure = error
        return size

    def truncate(self, size: int | None = None) -> Any:
        if self.failure is None:
            try:
                super().truncate(size)
            except OSError as error:
                self.failure = error
        return size

    def check(self) -> None:
        """Raise the first failure."""
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def written_file(path: str | Path, change: bool = False) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Yield (h5py.File, check) of a new file or, with change, of an existing one.

    check() raises OSError if a write has failed, and so does the end of the body.
    """
    with _Deferred(path, "r+" if change else "w+") as raw:
        with h5py.File(raw, "r+" if change else "w", libver="latest") as file:
            yield file, raw.check
        raw.check()


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an OSError of the body, which writes the file at `path`, into a FormatError."""
    try:
        yield
    except OSError as error:
        raise FormatError(
            f"cannot write {path}: {error.strerror or error}; choose a directory that exists, is writable and has space"
        ) from error


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[str]:
    """Yield a temporary path in the folder of `path`; rename it to `path` if the body succeeds, else remove it."""
    with writing(path), replaced_by(path) as temporary:
        yield temporary


def write_attributes(place: Any, **attributes: Any) -> None:
    """Set texts, numbers or lists of numbers on an open file, group or dataset."""
    for name, value in attributes.items():
        if isinstance(value, str):
            encoded = value.encode(errors="replace")  # of a file's name that is no text
            value = np.array(encoded, dtype=text_type(len(encoded)))
        place.attrs[name] = value


def read_attributes(place: Any) -> dict[str, Any]:
    """Return {name: str or numpy scalar or array} of an open file, group or dataset.

    Raises:
        FormatError: an attribute is refused. Damage raises h5py's own errors.
    """
    found, attributes = {}, place.attrs
    for name in attributes:
        described = attributes.get_id(name)
        shape, dtype = described.shape, described.dtype  # asked once: h5py opens the attribute each time
        size = 0 if shape is None else int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
        if shape is None or dtype.kind not in "iufbS" or size > LARGEST_ATTRIBUTE:
            raise FormatError(
                f"{place.file.filename}: attribute {name!r} of {place.name} is refused: expected a number or a text "
                f"of fixed length, at most {LARGEST_ATTRIBUTE} bytes, got {dtype} of {size} bytes. The file "
                "is corrupted, from another program, or older than format version 2: make it again"
            )
        array = np.empty(shape, dtype)
        described.read(array)
        value = array[()]
        try:
            found[name] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{place.file.filename}: attribute {name!r} of {place.name} is no text in UTF-8: {error}"
            ) from error
    return found


def create_dataset(group: Any, name: str, shape: tuple[int, ...], dtype: Any, clusters: int = 1, axis: int = 0) -> Any:
    """A chunked, checksummed dataset. One axis is resizable so that empty arrays can be chunked too. Texts are packed,
    being padding for the most part. clusters: into how many runs of rows its readers may take it apart.
    dtype: as numpy has it, or `narrow.stored_type()`. axis: that of the rows; a chunk has one place of those before it.
    """
    count, rest = shape[axis], shape[axis + 1 :]
    row_bytes = max(1, int(np.prod(rest, dtype=np.int64)) * itemsize(dtype))
    of_cluster = max(count // max(1, clusters), LEAST_CHUNK_BYTES // row_bytes)
    rows = max(1, min(max(count, 1), CHUNK_BYTES // row_bytes, of_cluster))
    chunks, packing = (*(1,) * axis, rows, *(max(1, s) for s in rest)), 1 if getattr(dtype, "kind", "") == "S" else None
    return group.create_dataset(
        name, shape, dtype, chunks=chunks, maxshape=(None, *shape[1:]), fletcher32=True, compression=packing
    )


def write_rows(
    group: Any,
    name: str,
    array: Any,
    check: Callable[[], None],
    progress: Progress = lambda rows: None,
    clusters: int = 1,
    halved: bool = False,
) -> Any:
    """Write an array-like (`schema.Rows`) slab by slab, so that memory-mapped and lazily permuted sources never lie
    whole in memory. clusters: as of `create_dataset`. halved: whether the numbers are stored in bfloat16.
    """
    dataset = create_dataset(group, name, tuple(array.shape), stored_type() if halved else array.dtype, clusters)
    for start in range(0, array.shape[0], SLAB_ROWS):
        rows = array[start : start + SLAB_ROWS]
        if halved:
            write_rounded(dataset, start, rows)
        else:
            dataset[start : start + len(rows)] = rows
        check()
        progress(len(rows))
    return dataset


def within(group: Any, name: str) -> Any:
    """What stands at `name` below an open file or group, or None. FormatError for a link, which may lead out of the
    file, and for data that lies in others.
    """
    node, path = group, group.file.filename
    for part in name.split("/"):
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise FormatError(f"{path}: {name} is a link ({part}); links are refused, copy the data into the file")
        node = node[part]
    if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
        raise FormatError(f"{path}: {name} keeps its data in other files; that is refused, copy it into the file")
    return node


def check_dataset(path: str | Path, file_bytes: int, name: str, dataset: Any) -> None:
    """FormatError for an h5py dataset with a filter that HDF5 would load foreign code for, or larger than the file can
    hold.
    """
    described = dataset.id.get_create_plist()
    filters = {described.get_filter(index)[0] for index in range(described.get_nfilters())}
    foreign = filters - _FILTERS.keys()
    if foreign:
        raise FormatError(
            f"{path}: {name} is packed with HDF5 filter {min(foreign)}, which needs a plugin; that is refused, "
            "repack the file (h5repack -f GZIP=4)"
        )
    growth = max((_FILTERS[each] for each in filters), default=1)
    if dataset.size * dataset.id.get_type().get_size() > growth * file_bytes:
        raise FormatError(
            f"{path}: {name} claims shape {dataset.shape}, more than a file of {file_bytes} bytes can hold; it is "
            "corrupted or incomplete"
        )


def text_type(longest: int) -> np.dtype:
    """Return the type of a text, or a column of texts, with at most `longest` bytes of UTF-8."""
    return np.dtype(h5py.string_dtype("utf-8", max(1, longest)))


def as_texts(words: Sequence[str], dtype: np.dtype) -> np.ndarray:
    """Words as a column of `text_type`."""
    return np.array([word.encode() for word in words], dtype)
