"""Models from the user: a Python file named with `--plugin` runs, and registers its models next to the built-in ones.

The file is part of the run, like an option. The run directory keeps a copy (`COPY`), and checkpoints keep the hash of
its bytes. A run continues, or is evaluated, with the same code alone. The code is compiled from the hashed bytes: with
Python's own cache of compiled files, an edit within the same second would go unnoticed.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path

from hpcgnn.errors import ConfigError

# Its name in a run directory.
COPY = "plugin.py"


def load_plugin(path: str | Path) -> None:
    """Run a Python file as a module. Raises ConfigError if it cannot be read or parsed; its own errors pass through."""
    name, source = _module_name(path), _read(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ConfigError(f"--plugin: {path} is not a Python file; expected a name that ends with .py")
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"--plugin: {path} cannot be parsed: {error}; mend it") from error
    # The program leaves it out (plugins/memory_profile.py), and torch.compile, which a plugin may use, takes it to be
    # there.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._meta_registrations")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    # The record has the code that ran, even if the file changes meanwhile.
    module.__source__ = source  # type: ignore[attr-defined]
    exec(code, module.__dict__)


def _module_name(path: str | Path) -> str:
    return f"hpcgnn_plugin_{Path(path).stem}"


def plugin_source(path: str | Path) -> bytes:
    """Return the bytes of a plugin: the executed ones, if this process has run it. Raises ConfigError."""
    module = sys.modules.get(_module_name(path))
    if module is not None and Path(str(module.__file__)).absolute() == Path(path).absolute():
        return module.__source__
    return _read(path)


def _read(path: str | Path) -> bytes:
    if not Path(path).is_file():
        raise ConfigError(f"--plugin: no file {path}; expected a Python file that registers models")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--plugin: {path} cannot be read: {error.strerror or error}") from error


def plugin_hash(path: str | Path) -> str:
    """Return a hash that identifies a plugin's code, '' for no plugin. Raises ConfigError."""
    return hashlib.sha256(plugin_source(path)).hexdigest()[:16] if path else ""
