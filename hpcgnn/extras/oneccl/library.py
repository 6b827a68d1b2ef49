"""The wrapper library for Intel's oneCCL: its location, its check, and the process settings it needs.

`env/build-oneccl.sh` builds it on the user's machine, from the sources in native/. It carries their hash, which is
compared when it is loaded. oneCCL reads its settings from the environment when it starts. The user's settings stay; the
others are derived here from facts about the ranks.
"""

import ctypes
import hashlib
import os
import socket
import sys
from collections.abc import Collection
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import torch

from hpcgnn.errors import ConfigError

NATIVE = Path(__file__).parent / "native"
_NAME = "libhpcgnn_oneccl.so"
_VARIABLE = "HPCGNN_ONECCL"
_REMEDY = "build it with `bash env/build-oneccl.sh` (docs/cluster.md), or use --comm mpi"
#: The numbers by which the library knows types and operations.
TYPES = {torch.float32: 0, torch.float64: 1, torch.int32: 2, torch.int64: 3}
OPS = {"sum": 0, "max": 1, "min": 2}
_COUNTS = POINTER(c_size_t)
# {function: (result, arguments)} as in native/oneccl.cpp.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "hpo_sources": (c_char_p, []),
    "hpo_version": (c_char_p, []),
    "hpo_error": (c_char_p, []),
    "hpo_address_size": (c_size_t, []),
    "hpo_open": (c_void_p, [c_char_p, c_int]),
    "hpo_join": (c_int, [c_void_p, c_int, c_int]),
    "hpo_close": (c_int, [c_void_p]),
    "hpo_exchange": (c_void_p, [c_void_p, c_void_p, _COUNTS, c_void_p, _COUNTS]),
    "hpo_reduce": (c_void_p, [c_void_p, c_void_p, c_size_t, c_int, c_int]),
    "hpo_test": (c_int, [c_void_p]),
    "hpo_wait": (c_int, [c_void_p]),
}


def fingerprint() -> str:
    """Of the sources that lie here."""
    names = ("oneccl.cpp", "oneccl_stubs.c")
    return hashlib.sha256(b"".join((NATIVE / name).read_bytes() for name in names)).hexdigest()[:16]


def place() -> Path:
    """Where the library is looked for."""
    return Path(os.environ.get(_VARIABLE) or Path(sys.prefix) / "lib" / "hpcgnn-oneccl" / _NAME)


def load() -> ctypes.CDLL:
    """The library, with its functions declared; oneCCL is not started. Raises ConfigError."""
    path = place()
    if not path.is_file():
        raise ConfigError(f"--comm oneccl: no library {path}; {_REMEDY}")
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ConfigError(f"--comm oneccl: {path} cannot be used ({' '.join(str(error).split())}); {_REMEDY}") from None
    built = library.hpo_sources().decode()
    if built != fingerprint():
        raise ConfigError(
            f"--comm oneccl: {path} was built from other sources ({built}, expected {fingerprint()}); {_REMEDY}"
        )
    return library


def check_settings() -> None:
    """Raise ConfigError for settings of the user's with which oneCCL would end this process by a signal."""
    way = os.environ.get("CCL_ATL_TRANSPORT")
    if way not in (None, "mpi", "ofi"):
        raise ConfigError(f"--comm oneccl: expected CCL_ATL_TRANSPORT of mpi or ofi, got CCL_ATL_TRANSPORT={way}")
    interface, known = os.environ.get("CCL_KVS_IFACE"), [name for _, name in socket.if_nameindex()]
    if interface is not None and interface not in known:
        raise ConfigError(
            f"--comm oneccl: this node has no network interface CCL_KVS_IFACE={interface}; expected one of "
            f"{', '.join(known)}"
        )


def error_of(library: ctypes.CDLL) -> str:
    """Why the last call of this thread failed, in a line."""
    text: str = library.hpo_error().decode(errors="replace")
    return " ".join(text.split())


def transport_named() -> str:
    """Return the transport under oneCCL: mpi or ofi."""
    return os.environ["CCL_ATL_TRANSPORT"]


def settle(mpi_family: bool, one_node: bool, ranks_on_node: int, cores: Collection[int], crowded: bool) -> None:
    """Make the settings of oneCCL that the user has not made; before it is started.

    mpi_family: whether the MPI in this process is of MPICH's ABI, which oneCCL can use; crowded: whether ranks share
    cores.
    """
    settings = {
        # Its warnings are about settings and missing parts, on every rank.
        "CCL_LOG_LEVEL": "error",
        "CCL_ATL_TRANSPORT": "mpi" if mpi_family else "ofi",
        # Its own choice over MPI hands several exchanges to MPI at a time, in no order: jobs stood still.
        "CCL_ALLTOALLV": "scatter",
        # A rank's thread of oneCCL runs on a core of that rank; by default it would take one of the node's last cores.
        # oneCCL reads the list at this rank's index on its host.
        "CCL_WORKER_AFFINITY": ",".join([str(max(cores))] * max(ranks_on_node, os.cpu_count() or 1)),
    }
    if crowded:
        settings["CCL_YIELD"] = "sched_yield"
    if one_node:
        settings["CCL_KVS_IFACE"] = "lo"
    # The libraries of this process, not others that the system's loader might find.
    for variable, name in (("CCL_MPI_LIBRARY_PATH", "libmpi.so"), ("CCL_OFI_LIBRARY_PATH", "libfabric.so")):
        found = _loaded(name) or _installed(name)
        if found is not None:
            settings[variable] = found
    for variable, value in settings.items():
        os.environ.setdefault(variable, value)


def _loaded(name: str) -> str | None:
    """The path of a library that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if path.rpartition("/")[2].startswith(name):
            return path
    return None


def _installed(name: str) -> str | None:
    """The path of a library that the MPI of the environment brings."""
    return next((str(path) for path in sorted(Path(sys.prefix, "lib", "mpich").glob(f"{name}*"))), None)
