"""Directories of scratch files: whether they can serve."""

import logging
import os
import socket
import tempfile

from hpcgnn.config import Config
from hpcgnn.extras.offload.limits import Limit
from hpcgnn.extras.offload.options import options_of
from hpcgnn.extras.offload.scratch import ScratchError, free_bytes

log = logging.getLogger("hpcgnn")
_IN_MEMORY = "tmpfs", "ramfs"
_SHARED = "nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "afs", "glusterfs", "panfs"


def folder_of(config: Config) -> str:
    """The directory of --scratch, or the system's for temporary files."""
    return options_of(config).scratch or tempfile.gettempdir()


def check_folder(folder: str, limit: Limit) -> None:
    """Raise ScratchError unless there is such a directory, and not in memory. One on a shared file system is warned of,
    and not taken unasked.
    """
    if not os.path.isdir(folder):
        raise ScratchError(f"--scratch {folder}: there is no such directory on {socket.gethostname()}; make it first")
    kind = _file_system(folder)
    if kind in _IN_MEMORY:
        raise ScratchError(
            f"--scratch {folder} is of {kind}, which is memory itself; expected a directory on a local disk"
        )
    if kind.startswith(_SHARED) and not limit.said:
        raise ScratchError(f"{folder} is on a shared file system ({kind}); say a directory on a local disk (--scratch)")
    if kind.startswith(_SHARED):
        log.warning(
            "--scratch %s is on a shared file system (%s): a local disk is faster and disturbs nobody", folder, kind
        )


def check_space(folder: str, need: int, ranks_on_node: int) -> None:
    """Check a folder's free space for all ranks of a node.

    Args:
        folder: folder of the scratch files.
        need: bytes of this rank.
        ranks_on_node: number of ranks on the node.

    Raises:
        ScratchError: the folder cannot hold the files of all ranks.
    """
    free = free_bytes(folder)
    if free < need:
        raise ScratchError(
            f"--scratch {folder} has {free / 2**30:.2f} GiB free; expected {need / 2**30:.2f} GiB for "
            f"the {ranks_on_node} ranks of {socket.gethostname()}; choose another --scratch, give more --memory, or "
            "take more nodes"
        )


def _file_system(folder: str) -> str:
    """The type of the file system that a directory is on, '' where the system does not say."""
    path, best = os.path.realpath(folder), ("", "")
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    for point, kind in mounts:
        point = point.replace("\\040", " ")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = point, kind
    return best[1]
