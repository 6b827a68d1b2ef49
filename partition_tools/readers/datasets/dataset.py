"""Facts about a published data set: the place of its files, their reader, and its size.

Nothing is ever downloaded here. The files are searched for where their own download leaves them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch

Reader = Callable[[Path, TableOptions, Scratch], RawGraph]


@dataclass(frozen=True)
class Dataset:
    """A data set by its name.

    Attributes:
        nodes, edges: as published.
        page: address of its page.
        places: folders below the root to search.
        files: files that must lie in one of them.
        read: (folder, scratch) -> the graph.
        split: description of its split.
        undirected: published with one direction of each edge; reverse edges are added.
        usual: the usual other options, in words.
        classes: number of classes, some perhaps without members; None: they are counted.
    """

    name: str
    nodes: int
    edges: int
    page: str
    places: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[[Path, Scratch], RawGraph]
    split: str
    undirected: bool = False
    usual: str = ""
    classes: int | None = None

    def find(self, root: Path) -> Path:
        """The folder of its files. FormatError names the missing files, the searched places and the page."""
        if not root.is_dir():
            raise FormatError(f"there is no directory {root}; expected the files of {self.name} below --root")
        tried = list(dict.fromkeys(root / place for place in self.places))
        best = min(tried, key=lambda folder: len(self.missing(folder)))
        if missing := self.missing(best):
            where = f"{best} has no" if len(missing) < len(self.files) else "there is no"
            raise FormatError(
                f"{self.name}: {where} {', '.join(missing)}; tried "
                f"{', '.join(map(str, tried))}. It is to be had from {self.page}; nothing is downloaded here"
            )
        return best

    def missing(self, folder: Path) -> list[str]:
        """Its files that do not lie in a folder."""
        return [name for name in self.files if not (folder / name).is_file()]

    def inputs(self, folder: Path) -> list[Path]:
        """The files that are read, and the folders that are read whole, of the folder that was found."""
        return [path for path in (folder / "raw", *(folder / name for name in self.files)) if path.exists()]

    def load(self, folder: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
        """The `RawGraph` of the files in `folder`. Warns where it is not of the published size."""
        tables.refuse(self.name)
        raw = self.read(folder, scratch)
        raw.source, raw.num_classes = self.name, self.classes
        for what, found, published in (("nodes", raw.num_nodes, self.nodes), ("edges", raw.src.shape[0], self.edges)):
            if found != published:
                scratch.reporter.warn(f"{self.name}: {found:,} {what} were read, and {published:,} are published")
        return raw
