"""Models from the user: a Python file named with `--plugin` runs, and registers its models next to the built-in ones.

The file is part of the run, like an option. The run directory keeps a copy (`COPY`), and checkpoints keep the hash of
its bytes. A run continues, or is evaluated, with the same code alone. The code is compiled from the hashed bytes: with
Python's own cache of compiled files, an edit within the same second would go unnoticed.

Code that a file names in place of the user runs only if it belongs to the user or to root (`read_code`), and code of a
run only if its checkpoint was made with it.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from hpcgnn.errors import ConfigError
from hpcgnn.likely_names import file_beside

# Its name in a run directory.
COPY = "plugin.py"


def load_plugin(path: str | Path, unasked: str = "", recorded: str = "") -> ModuleType:
    """Run a Python file as a module, which is returned. Its own errors pass through.

    Args:
        path: the file.
        unasked: see `read_code`.
        recorded: the `plugin_hash` that the code must have; '' for any.

    Raises:
        ConfigError: it cannot be read or parsed, or it must not run.
    """
    name, source = _module_name(path), read_code(path, unasked)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ConfigError(f"--plugin: {path} is not a Python file; expected a name that ends with .py")
    if recorded and _hash(source) != recorded:
        raise ConfigError(
            f"--plugin: {path} has another code than the checkpoint of its run was made with, and is not run: expected "
            f"the hash {recorded}, got {_hash(source)}; give the file of then with --plugin FILE"
        )
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"--plugin: {path} cannot be parsed: {error}; mend it") from error
    # The program leaves it out (memory/resident.py), and torch.compile, which a plugin may use, takes it to be
    # there.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._meta_registrations")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    # The record has the code that ran, even if the file changes meanwhile.
    module.__source__ = source  # type: ignore[attr-defined]
    exec(code, module.__dict__)
    return module


def _module_name(path: str | Path) -> str:
    return f"hpcgnn_plugin_{Path(path).stem}"


def plugin_source(path: str | Path) -> bytes:
    """Return the bytes of a plugin: the executed ones, if this process has run it. Raises ConfigError."""
    module = sys.modules.get(_module_name(path))
    if module is not None and Path(str(module.__file__)).absolute() == Path(path).absolute():
        return module.__source__
    return read_code(path)


def read_code(path: str | Path, unasked: str = "") -> bytes:
    """Return the bytes of a Python file.

    Args:
        path: the file.
        unasked: the file or run that names the code in place of the user; '' if the user does. Code of another owner
            is then refused.

    Raises:
        ConfigError: it cannot be read, or is refused.
    """
    if not Path(path).is_file():
        raise ConfigError(f"--plugin: no file {path}; expected a Python file{file_beside(path)}")
    try:
        with open(path, "rb") as file:
            owner = _owner(file)
            if unasked and owner not in (0, os.getuid()):
                raise ConfigError(
                    f"--plugin: {path} is code of another owner (user {owner}) that {unasked} names, and is not run: "
                    f"read it first, then give --trust-run, or --plugin {path} on the command line"
                )
            return file.read()
    except OSError as error:
        raise ConfigError(f"--plugin: {path} cannot be read: {error.strerror or error}") from error


def _owner(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_uid


def plugin_hash(path: str | Path) -> str:
    """Return a hash that identifies a plugin's code, '' for no plugin. Raises ConfigError."""
    return _hash(plugin_source(path)) if path else ""


def _hash(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]
