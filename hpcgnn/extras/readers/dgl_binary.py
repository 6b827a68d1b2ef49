"""DGL's binary files, read without DGL: tensors of `save_tensors`, and one graph of one relation of `save_graphs`.

All numbers are little-endian. A string is its length (u64) and its bytes. A tensor is a magic, then device, dimensions,
type and shape, the number of bytes, and these. A file of a graph has 4096 bytes of heading. Then come labels, the graph
of types, the edges in one or more layouts, and tensors of nodes and of edges by name. DGL 2.1 wrote the files of the
tests. A file that differs anywhere is refused.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError

_TENSORS, _TENSOR = 0xDD5A9FBE3FA2443F, 0xDD5E40F096B4A13F
_FILE, _GRAPH, _TYPES, _RELATION = 0xDD2E4FF046B4A13F, 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD2E60F0F6B4A127
_CSR, _COO = 0xDD6CD31205DFF127, 0xDD61FFD305DFF127
_HEADING = 4096
#: Layouts of a relation, as bits: a pair of lists, by source, by destination.
_PAIRS, _BY_SOURCE, _BY_DESTINATION = 1, 2, 4
_KINDS = {0: "i", 1: "u", 2: "f"}


@dataclass(frozen=True)
class StoredGraph:
    """A graph of one type of nodes and one of edges: src, dst int (E,) in the order of the edges' numbers, and the
    tensors of its nodes and edges by name.
    """

    src: np.ndarray
    dst: np.ndarray
    nodes: dict[str, np.ndarray]
    edges: dict[str, np.ndarray]


class _Reader:
    """A file's bytes, and a place among them."""

    def __init__(self, path: Path) -> None:
        try:
            self._bytes = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        except OSError as error:
            raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
        self.path, self.place = path, 0

    def damaged(self, expected: str) -> FormatError:
        """The error where something else was expected."""
        return FormatError(
            f"{self.path}: expected {expected} at byte {self.place}, as DGL 2.1 writes it; read the folder with DGL "
            "(dgl.distributed.load_partition) and give its arrays to partition_tools.save_graph"
        )

    def take(self, count: int) -> np.ndarray:
        """The next bytes."""
        if not 0 <= count <= len(self._bytes) - self.place:
            raise self.damaged(f"{count} more bytes")
        self.place += count
        return self._bytes[self.place - count : self.place]

    def number(self) -> int:
        """The next u64."""
        return struct.unpack("<Q", self.take(8).tobytes())[0]

    def magic(self, wanted: int, what: str) -> None:
        """Pass a magic number. Raises FormatError."""
        if self.number() != wanted:
            self.place -= 8
            raise self.damaged(what)

    def text(self) -> str:
        """The next string."""
        return self.take(self.number()).tobytes().decode()

    def several(self, read: Callable[[], Any]) -> list[Any]:
        """A count, and as many of what `read` reads."""
        return [read() for _ in range(self.number())]

    def tensor(self) -> np.ndarray:
        """The next tensor, mapped from the file."""
        self.magic(_TENSOR, "a tensor")
        _, _, _, dims, kind, bits, lanes = struct.unpack("<QiiiBBH", self.take(24).tobytes())
        if kind not in _KINDS or bits not in (8, 16, 32, 64) or lanes != 1 or not 0 <= dims < 8:
            raise self.damaged(f"a tensor of numbers of 8 to 64 bits, got type {kind} of {bits} bits")
        shape = struct.unpack(f"<{dims}q", self.take(8 * dims).tobytes())
        dtype = np.dtype(f"<{_KINDS[kind]}{bits // 8}")
        if self.number() != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
            self.place -= 8
            raise self.damaged(f"the bytes of a tensor of shape {shape}")
        return np.frombuffer(self.take(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize), dtype).reshape(shape)

    def named(self) -> tuple[str, np.ndarray]:
        """The next name and its tensor."""
        return self.text(), self.tensor()


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """{name: array} of a file of `save_tensors`, such as node_feat.dgl. Raises FormatError."""
    reader = _Reader(path)
    reader.magic(_TENSORS, "a file of tensors")
    reader.number()
    return dict(reader.several(reader.named))


def read_graph(path: Path) -> StoredGraph:
    """The one graph of a file of `save_graphs`, such as graph.dgl of a partition. Raises FormatError."""
    reader = _Reader(path)
    reader.magic(_FILE, "a file of graphs")
    heading = struct.unpack("<QQQ", reader.take(24).tobytes())
    if heading != (2, 2, 1):
        raise reader.damaged(f"one graph in version 2 of the format, got {heading}")
    reader.take(_HEADING - reader.place)
    reader.number()
    reader.several(reader.named)
    reader.magic(_GRAPH, "a graph")
    _types(reader)
    if reader.number() != 1:
        raise reader.damaged("one relation; several are of a graph that is no partition")
    src, dst = _relation(reader)
    reader.several(reader.number)
    nodes = reader.several(lambda: dict(reader.several(reader.named)))
    edges = reader.several(lambda: dict(reader.several(reader.named)))
    return StoredGraph(src, dst, *(each[0] if each else {} for each in (nodes, edges)))


def _types(reader: _Reader) -> None:
    """Pass the graph of the types."""
    reader.magic(_TYPES, "the graph of types")
    _by_rows(reader)


def _relation(reader: _Reader) -> tuple[np.ndarray, np.ndarray]:
    """(src, dst) of the edges, from the first layout that is stored."""
    reader.magic(_RELATION, "a relation")
    layouts = struct.unpack("<iiii", reader.take(16).tobytes())[0]
    found = None
    for layout in (_PAIRS, _BY_SOURCE, _BY_DESTINATION):
        if not layouts & layout:
            continue
        _types(reader)
        pair = _pairs(reader) if layout == _PAIRS else _by_rows(reader)
        found = found or (pair if layout != _BY_DESTINATION else pair[::-1])
    if found is None:
        raise reader.damaged("edges")
    return found


def _pairs(reader: _Reader) -> tuple[np.ndarray, np.ndarray]:
    reader.magic(_COO, "a list of edges")
    reader.take(16)
    rows, columns, places = reader.tensor(), reader.tensor(), reader.tensor()
    reader.take(2)
    return _in_order(rows, places), _in_order(columns, places)


def _by_rows(reader: _Reader) -> tuple[np.ndarray, np.ndarray]:
    reader.magic(_CSR, "edges by node")
    reader.take(16)
    ends, columns, places = reader.tensor(), reader.tensor(), reader.tensor()
    reader.take(1)
    rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    return _in_order(rows, places), _in_order(columns, places)


def _in_order(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """values in the order of the edges' numbers. places: (E,) these numbers, or none where they are in order."""
    if not len(places):
        return values
    ordered = np.empty_like(values)
    ordered[places] = values
    return ordered
