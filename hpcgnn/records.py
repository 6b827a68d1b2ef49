"""Small pieces shared by everything that leaves a record: files that are complete or absent, strict JSON, spreads, and
from where epochs count.
"""

import contextlib
import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcgnn.errors import RunDirError

FIRST_EPOCH = 1  # in all that a run writes; see counted_from_one


@contextlib.contextmanager
def replaced_by(path: str | Path) -> Iterator[str]:
    """Yield a temporary path beside `path`; when the body succeeds flush it to disk and rename it to `path`, else
    remove it. Of a link the file that it leads to is replaced. Raises OSError where `path` is no plain file.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():  # a rename would take a device from the system
        raise OSError(errno.EEXIST, "it is no plain file", str(path))
    handle, temporary = tempfile.mkstemp(prefix=hidden_name(path), suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def hidden_name(path: Path) -> str:
    """`.NAME.`, with which the names of hidden files beside `path` begin.

    A file system has 255 bytes for a name. Of one that fits barely, the first 230 count; one that does not fit stays.
    """
    name = os.fsencode(path.name)
    return f".{os.fsdecode(name[:230] if len(name) <= 255 else name)}."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a whole file, of text or of bytes: complete or not there at all. Raises RunDirError."""
    try:
        with replaced_by(path) as temporary:
            Path(temporary).write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise RunDirError(
            f"cannot write {path}: {error.strerror}; choose a --run-dir that is writable and has space"
        ) from error


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
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON text."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def shown_number(value: float | None) -> str:
    """A loss or a metric as people read it; a dash for what there is none of (None or NaN)."""
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def spread(values: Sequence[float]) -> dict[str, float]:
    """{max, mean, min} of numbers, one per rank."""
    return {"max": max(values), "mean": sum(values) / len(values), "min": min(values)}


def counted_from_one(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of `metrics.jsonl` with epochs that count from 1.

    Earlier versions called the first epoch 0; their records are renumbered. All others are returned as they are.
    """
    if not records or records[0].get("epoch") != 0:
        return records
    return [{**record, "epoch": record["epoch"] + FIRST_EPOCH} for record in records]
