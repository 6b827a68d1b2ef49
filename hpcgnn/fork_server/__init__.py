"""One import for all ranks of a node: `HPCGNN_FORK_SERVER=1`.

After its imports a process has some 150 MiB of its own: torch registers operators on the heap, and makes modules of
Python. Here the first rank of a node forks a server, which imports, and forks the ranks. So the pages are
shared, and one process of a node opens the files. The processes that the launcher has started stay as proxies
(`proxy.py`): they pass signals on, and end as their ranks do.
"""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hpcgnn.comm.launcher import launch
from hpcgnn.fork_server.proxy import SIGNALS
from hpcgnn.terminal import tell

VARIABLE = "HPCGNN_FORK_SERVER"
# Variables by which OpenMP binds threads when it loads.
_BINDING_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
# Variables that differ between starts. The port is of a store that torchrun opens.
_OF_A_START = (
    *("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)


def enter(load: Callable[[], None], listen: Callable[[], None]) -> None:
    """Return in the rank: in this process, or in a fork of the server's, where HPCGNN_FORK_SERVER=1 asks for one.

    Args:
        load: imports the modules of a rank, and starts nothing.
        listen: has the rank note signals.
    """
    ranks = ranks_to_fork()
    if not isinstance(ranks, int):
        if ranks is not None and launch().local_rank == 0:
            tell(f"hpcgnn: warning: no fork server: {ranks}; each rank imports its modules itself", sys.stderr)
        listen()
        return
    before, name = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS), socket_name()
    if launch().local_rank != 0 or os.fork() != 0:
        _become_proxy(name)
    _serve(name, ranks, load)
    listen()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ranks_to_fork() -> int | str | None:
    """How many ranks of this node are forked from one process; None if it is not asked for, or why they cannot be."""
    ranks, wanted = launch().local_size, os.environ.get(VARIABLE, "")
    if wanted in ("", "0") or ranks == 1:
        return None
    if wanted != "1":
        return f"{VARIABLE} is {wanted!r}, expected 0 or 1"
    if not hasattr(os, "pidfd_open"):
        return "this system has no handles of processes (pidfd, Linux 5.3)"
    if bound := next((name for name in _BINDING_VARIABLES if name in os.environ), None):
        return f"{bound} is set, so OpenMP would bind all ranks to the cores of the first"
    if ranks is None:
        return "the launcher does not say how many ranks this node has"
    return ranks if _job() else "the launcher's process is not known"


def socket_name() -> str:
    """The name of the server's socket: the same for all ranks of this node and start, and for no others."""
    return f"@hpcgnn {os.getuid()} {socket.gethostname()} {os.environ.get('SLURMD_NODENAME', '')} {_job()}"


def _job() -> str:
    """A text that differs between starts: variables, and the process of MPICH's mpiexec on this node; or empty."""
    job, pid = " ".join(os.environ[name] for name in _OF_A_START if name in os.environ), os.getppid()
    while pid > 1:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            break
        if name.startswith("hydra"):
            return f"{job} {pid}"
        pid = int(rest.split()[1])
    return job


def _become_proxy(name: str) -> NoReturn:
    proxy = str(Path(__file__).with_name("proxy.py"))
    os.execv(sys.executable, [sys.executable, "-ISs", proxy, name, *sys.argv[1:]])


def _serve(name: str, ranks: int, load: Callable[[], None]) -> None:
    """Be the server, and return in its ranks."""
    from hpcgnn.fork_server.server import ForkServer, become_rank, listen

    channel = os.environ.pop("PMI_FD", "")
    if channel.isdigit():
        os.close(int(channel))  # or the launcher would not see that the first rank has closed it
    listening = listen(name)
    load()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    server = os.getpid()
    become_rank(ForkServer(listening, ranks).serve(), server)
