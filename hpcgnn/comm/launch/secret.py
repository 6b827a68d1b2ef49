"""A secret of the ranks of a user, so that no other user joins a job without MPI or writes to its store.

It is 32 random bytes in a file of the user's home directory, which all nodes see. Under mpiexec rank 0 draws others,
and hands them on by the launcher's key-value space (`rendezvous.py`). A seal is an HMAC-SHA-256 of plain values.
"""

import contextlib
import hashlib
import hmac
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from hpcgnn.errors import ConfigError

BYTES = 32
SEAL_LETTERS = 64


def seal(secret: bytes, *values: Any) -> str:
    """The seal of values that JSON can express."""
    return hmac.new(secret, json.dumps(values).encode(), hashlib.sha256).hexdigest()


def is_seal(given: object, secret: bytes, *values: Any) -> bool:
    """Whether `given` is the seal of these values."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), seal(secret, *values).encode())


def secret_of_user() -> bytes:
    """The user's secret, which the first job draws. Raises ConfigError where it cannot be made, read or trusted."""
    path = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "hpcgnn", "secret")
    try:
        if not path.exists():
            _draw(path)
        with open(path, "rb") as file:
            about, secret = os.fstat(file.fileno()), file.read()
    except OSError as error:
        raise ConfigError(
            f"{path}: the secret by which ranks without MPI know each other cannot be made or read: {error.strerror}; "
            "set XDG_CONFIG_HOME to a folder of yours that all nodes see"
        ) from error
    if about.st_uid != os.getuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or len(secret) != BYTES:
        raise ConfigError(
            f"{path}: expected {BYTES} bytes of your own with mode 600, got {len(secret)} of user {about.st_uid} with "
            f"mode {stat.S_IMODE(about.st_mode):o}; remove it, and the next job makes a new one"
        )
    return secret


def _draw(path: Path) -> None:
    """Make the file, complete or not at all; of several ranks the first makes it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        os.write(handle, os.urandom(BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.close(handle)
        os.unlink(temporary)
