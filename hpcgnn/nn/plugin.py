"""Models of one's own: a Python file named with `--plugin` is run, and what it registers is on offer like all others."""

import importlib.util
import sys
from pathlib import Path

from hpcgnn.errors import ConfigError


def load_plugin(path):
    """Run a Python file as a module. Raises ConfigError if it cannot be read or parsed; its own errors pass through."""
    name = f"hpcgnn_plugin_{Path(path).stem}"
    if not Path(path).is_file():
        raise ConfigError(f"--plugin: no file {path}; expected a Python file that registers models")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ConfigError(f"--plugin: {path} is not a Python file; expected a name that ends with .py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(f"--plugin: {path} cannot be parsed: {error}; mend it") from error
    except OSError as error:
        raise ConfigError(f"--plugin: {path} cannot be read: {error.strerror or error}") from error
