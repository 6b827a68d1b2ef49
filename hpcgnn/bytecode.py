"""The code of all modules that a training imports, in one file: a rank opens it in place of some 1,500 files.

    python -m hpcgnn.startup         writes it into the package, anew after anything was installed or changed

Python opens a compiled file for each module, and each folder on the way there, which thousands of ranks at once ask of
the one metadata server of a file system. Here a module is looked up in the file, if there is one, and its source is
only asked for time and size: a module that has changed since is imported as ever, and so is one that is not in the
file. Where Python would search other folders than when the file was written, the file is not used. All else is as of an
ordinary import: names, paths, sources in tracebacks.
"""

import contextlib
import importlib.abc
import importlib.util
import marshal
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

FILE = Path(__file__).with_name(f"_bytecode.{sys.implementation.cache_tag}.bin")
# Code of another Python is none. The place of the index follows, then the codes, and the index is last.
_HEAD = importlib.util.MAGIC_NUMBER
_NUMBER_BYTES = 8


class _Entry(NamedTuple):
    """path: of the source, whose time and size are those of `nanoseconds` and `size`; place, length: of the code."""

    path: str
    package: bool
    nanoseconds: int
    size: int
    place: int
    length: int


class _Loader(SourceFileLoader):
    """Of a module whose code is in the file."""

    def __init__(self, name: str, entry: _Entry, file: int) -> None:
        super().__init__(name, entry.path)
        self._entry, self._file = entry, file

    def get_code(self, fullname: str) -> CodeType | None:
        code = marshal.loads(os.pread(self._file, self._entry.length, self._entry.place))
        return code if isinstance(code, CodeType) else super().get_code(fullname)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, entries: dict[str, _Entry], file: int) -> None:
        self._entries, self._file = entries, file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        entry = self._entries.get(fullname)
        if entry is None or (path is not None and os.path.dirname(_beside(entry)) not in path):
            return None
        try:
            about = os.stat(entry.path)
        except OSError:
            return None
        if (about.st_mtime_ns, about.st_size) != (entry.nanoseconds, entry.size):
            return None
        folders = [os.path.dirname(entry.path)] if entry.package else None
        loader = _Loader(fullname, entry, self._file)
        return importlib.util.spec_from_file_location(
            fullname, entry.path, loader=loader, submodule_search_locations=folders
        )


def _beside(entry: _Entry) -> str:
    """What lies in the folder that the module was found in: its source, or its package's folder."""
    return os.path.dirname(entry.path) if entry.package else entry.path


def _search_path() -> list[str]:
    """Where modules are searched for, without the folder that the program happens to be started in or from, which
    Python puts first.
    """
    return list(sys.path if sys.flags.safe_path else sys.path[1:])


def serve(path: Path = FILE) -> bool:
    """Import from the file from now on, if it is there and of this Python. Returns whether."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return True
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        head = os.pread(file, len(_HEAD) + _NUMBER_BYTES, 0)
        place = int.from_bytes(head[len(_HEAD) :], "little")
        if head.startswith(_HEAD):
            searched, index = marshal.loads(os.pread(file, os.fstat(file).st_size - place, place))
            if searched != _search_path():
                raise ValueError("another checkout or environment comes first")
            sys.meta_path.insert(0, _Finder({name: _Entry(*values) for name, values in index.items()}, file))
            return True
    os.close(file)
    return False


def write(path: Path = FILE) -> int:
    """Write the code of all modules that are imported by now and have a source. Returns how many. Raises OSError."""
    index, codes, place = {}, [], len(_HEAD) + _NUMBER_BYTES
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or spec.name != name or not isinstance(spec.loader, SourceFileLoader):
            continue
        source, about = spec.loader.path, os.stat(spec.loader.path)
        code = marshal.dumps(spec.loader.get_code(name))
        package = spec.submodule_search_locations is not None
        index[name] = (source, package, about.st_mtime_ns, about.st_size, place, len(code))
        codes.append(code)
        place += len(code)
    temporary = path.with_name(f".{path.name}.part")
    head, last = _HEAD + place.to_bytes(_NUMBER_BYTES, "little"), marshal.dumps((_search_path(), index))
    temporary.write_bytes(b"".join([head, *codes, last]))
    temporary.replace(path)
    return len(index)
