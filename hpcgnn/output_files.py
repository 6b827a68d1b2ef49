"""Where a command may write: the rule of every output, checked before any work is done.

A file that was named by mistake is lost the moment another one takes its name. So an output is never a file that the
same command reads, never a file of a run, and never anything but a plain file or a new name, with --force or without.
Any other file is replaced with --force alone, and not if it is write-protected. A link stays a link: the file
that it leads to is replaced.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hpcgnn.errors import ConfigError
from hpcgnn.records import write_protected

#: What a run directory has: the files and folders that `train`, `evaluate` and `import-weights` write there.
RUN_FILES = (
    *("config.toml", "plugin.py", "metrics.jsonl", "summary.json", "ranks.jsonl"),
    *("evaluation.json", "log.txt", "curves.png", "ro-crate-metadata.json"),
)
RUN_FOLDERS = ("checkpoints", "ranks", "heartbeats", "trace")
# Two of these make a directory one of a run, finished or not; one alone may be anything's.
_MARKS = ("config.toml", "metrics.jsonl", "summary.json", "checkpoints")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
#: A path, or nothing.
Name = str | os.PathLike[str] | None


def check_outputs(outputs: Mapping[str, Name], inputs: Iterable[Name] = (), force: bool = False) -> None:
    """Raise ConfigError unless a command may write all its outputs.

    outputs: {option that names it, or '': its path}; inputs: all files that the command reads, whether they exist or
    not. They are looked at only where an output exists. None and '' stand for a path that is not given. force:
    existing files are to be replaced.
    """
    given = {option: os.fspath(path) for option, path in outputs.items() if path}
    inputs = list(inputs) if any(os.path.lexists(path) for path in given.values()) else []
    targets: dict[str, str] = {}
    for option, path in given.items():
        what, target = f"{option} {path}".strip(), os.path.realpath(path)
        _check(what, path, target, inputs, force)
        if target in targets:
            raise ConfigError(f"{what} is also named by {targets[target]}; choose another name for one of them")
        targets[target] = option


def _check(what: str, path: str, target: str, inputs: Iterable[Name], force: bool) -> None:
    there = _stat(what, path)
    if there is not None and not stat.S_ISREG(there.st_mode):
        kind = _KINDS.get(stat.S_IFMT(there.st_mode), "something else")
        raise ConfigError(f"{what} is {kind}; expected a plain file or a new name")
    run_dir = run_of(Path(target))
    if run_dir is not None:
        raise ConfigError(f"{what} is a file of the run {os.path.relpath(run_dir)}; choose another name")
    if there is not None:
        _check_existing(what, path, there, inputs)
    if there is not None and not force:
        raise ConfigError(f"expected a new name; {what} exists; choose another name or overwrite it with --force")
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise ConfigError(
            f"cannot write {what}: there is no directory {os.path.dirname(path) or folder}; make it first"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write {what}: its directory cannot be written; choose another one")
    if there is not None and write_protected(target):
        raise ConfigError(f"{what} is write-protected; allow the change with chmod u+w, or choose another name")


def _stat(what: str, path: str) -> os.stat_result | None:
    """The status of the file at a path, or None. Raises ConfigError for links in a circle and names that cannot be."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot write {what}: {reason}; choose another name") from error


def _check_existing(what: str, path: str, there: os.stat_result, inputs: Iterable[Name]) -> None:
    for each in inputs:
        if each and _is_at(each, there):
            same = os.path.abspath(each) == os.path.abspath(path)
            raise ConfigError(f"{what} is the input{'' if same else f' {os.fspath(each)}'} itself; choose another name")


def _is_at(path: str | os.PathLike[str], there: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), there)
    except (OSError, ValueError):
        return False


def run_of(target: Path) -> Path | None:
    """The run directory that a file is of, or would be; None if it is of none. target: without links."""
    for folder in target.parents:
        if target.relative_to(folder).parts[0] in (*RUN_FILES, *RUN_FOLDERS) and _is_run(folder):
            return folder
    return None


def _is_run(folder: Path) -> bool:
    return sum((folder / mark).exists() for mark in _MARKS) > 1


def files_of_run(run_dir: str | Path) -> Iterator[Path]:
    """All files of a run that are there."""
    for name in RUN_FILES:
        yield Path(run_dir, name)
    for name in RUN_FOLDERS:
        yield from files_below(Path(run_dir, name))


def files_below(folder: Path, but: tuple[str, ...] = ()) -> Iterator[Path]:
    """All files of a folder and the folders in it, but for those whose names end so."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if not name.lower().endswith(but or ("\0",)))
