"""Small pieces shared by everything that leaves a record: files that are complete or absent, strict JSON, spreads."""

import contextlib
import errno
import json
import logging
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcgnn.errors import RunDirError

log = logging.getLogger("hpcgnn")
_ACCESS_LIST = "system.posix_acl_access"

_SPLITS = {"train", "val", "test"}


def metrics_by_split(record: Mapping[str, Any]) -> dict[str, Any]:
    """{name: {split: {metric: value}}} of the tables with all metrics in the record of an epoch or of a run."""
    tables = {
        name: table for name, table in record.items() if isinstance(table, dict) and table and _SPLITS.issuperset(table)
    }
    return {name: table for name, table in tables.items() if all(isinstance(each, dict) for each in table.values())}


@contextlib.contextmanager
def replaced_by(path: str | Path) -> Iterator[str]:
    """Yield a temporary path in the folder of `path`; when the body succeeds flush it to disk and rename it to `path`,
    else remove it. Of a link the file that it leads to is replaced. A replaced file keeps its mode, owner and group.

    Raises OSError where `path` is no plain file, or is write-protected.
    """
    path = Path(os.path.realpath(path))
    before = path.stat() if path.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):  # a rename would take a device from the system
        raise OSError(errno.EEXIST, "it is no plain file", str(path))
    if before is not None and write_protected(path):  # a rename asks for the rights of the folder alone
        raise OSError(errno.EACCES, "it is write-protected", str(path))
    temporary = str(path.with_name(f"{hidden_name(path)}{secrets.token_hex(8)}.part"))
    # The system gives a new file the rights of any other. One for the place of a private file is private at once.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if before is None else 0o600))
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        if before is not None:
            _give_rights(temporary, path, before)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def hidden_name(path: Path) -> str:
    """`.NAME.`, the prefix of hidden files in the folder of `path`.

    A file system has 255 bytes for a name. Of one that fits barely, the first 230 count; one that does not fit stays.
    """
    name = os.fsencode(path.name)
    return f".{os.fsdecode(name[:230] if len(name) <= 255 else name)}."


def write_protected(path: str | Path) -> bool:
    """Whether a file may not be changed: not by this user, or by its mode by nobody, which the system lets root do."""
    return not os.access(path, os.W_OK) or not os.stat(path).st_mode & 0o222


def _give_rights(temporary: str, path: Path, before: os.stat_result) -> None:
    """Give a new file the owner, group, mode and access list of the one that it replaces, if the system allows it."""
    with contextlib.suppress(OSError):  # few files have an access list, and few file systems
        os.setxattr(temporary, _ACCESS_LIST, os.getxattr(path, _ACCESS_LIST))
    mode = stat.S_IMODE(before.st_mode)
    for owner in (before.st_uid, -1):
        with contextlib.suppress(OSError):
            os.chown(temporary, owner, before.st_gid)
            break
    if os.stat(temporary).st_gid != before.st_gid:
        mode &= ~stat.S_IRWXG  # another group may not get rights by this
        log.warning("%s could not keep its group: the group that it has now may not read it", path)
    os.chmod(temporary, mode)


def write_atomically(
    path: str | Path, content: str | bytes, remedy: str = "choose a --run-dir that is writable and has space"
) -> None:
    """Write a whole file, of text or of bytes: complete or not there at all. Raises RunDirError with the remedy."""
    try:
        with replaced_by(path) as temporary:
            Path(temporary).write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise RunDirError(f"cannot write {path}: {error.strerror}; {remedy}") from error


def plain(value: Any) -> Any:
    """The value with numbers that JSON cannot express (NaN, infinities) as None, and numpy or torch scalars as
    Python's.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON text of the value as `plain` has it."""
    with contextlib.suppress(TypeError, ValueError):  # most values are plain
        return json.dumps(value, indent=indent, allow_nan=False)
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def shown_number(value: float | None) -> str:
    """A loss or a metric as people read it; a dash for None and NaN."""
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


_LATEX = str.maketrans({sign: "\\" + sign for sign in "_%$#&{}"})
_LATEX |= str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
)
_LATEX |= str.maketrans({"–": "--", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"})


def latex(text: str) -> str:
    """A text with its signs as LaTeX takes them."""
    return text.translate(_LATEX)


def spread(values: Sequence[float]) -> dict[str, float]:
    """{max, mean, min, sum} of numbers, one per rank."""
    return {"max": max(values), "mean": sum(values) / len(values), "min": min(values), "sum": sum(values)}
