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
    here, ranks = launch(), launch().local_size
    if os.environ.get(VARIABLE, "") in ("", "0") or ranks == 1:
        listen()
        return
    reason = _obstacle()
    if ranks is None or reason is not None:
        if here.local_rank == 0:
            tell(f"hpcgnn: warning: no fork server: {reason}; each rank imports its modules itself", sys.stderr)
        listen()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    environment = dict(os.environ)
    name = socket_name()
    if here.local_rank != 0 or os.fork() != 0:
        _become_proxy(name)
    _serve(name, ranks, load, environment)
    listen()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _obstacle() -> str | None:
    """Why the ranks of this node cannot be forked from one process, or None."""
    if os.environ[VARIABLE] != "1":
        return f"{VARIABLE} is {os.environ[VARIABLE]!r}, expected 0 or 1"
    if not hasattr(os, "pidfd_open"):
        return "this system has no handles of processes (pidfd, Linux 5.3)"
    if bound := next((name for name in _BINDING_VARIABLES if name in os.environ), None):
        return f"{bound} is set, so OpenMP would bind all ranks to the cores of the first"
    if launch().local_size is None:
        return "the launcher does not say how many ranks this node has"
    return None


def socket_name() -> str:
    """The name of the server's socket: the same for all ranks of this node and start, and for no others."""
    job = "/".join(os.environ.get(name, "") for name in _OF_A_START)
    node = os.environ.get("SLURMD_NODENAME", "")
    return f"@hpcgnn {os.getuid()} {socket.gethostname()} {node} {job} {_hydra()}"


def _hydra() -> str:
    """The number of the process of MPICH's mpiexec that has started the ranks of this node; empty without one."""
    pid = os.getppid()
    while pid > 1:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            break
        if name.startswith("hydra"):
            return str(pid)
        pid = int(rest.split()[1])
    return ""


def _become_proxy(name: str) -> NoReturn:
    skip = len(sys.orig_argv) - len(sys.argv) + 1
    proxy = [sys.executable, "-ISs", str(Path(__file__).with_name("proxy.py")), name, str(skip)]
    os.execv(sys.executable, [*proxy, sys.executable, *sys.orig_argv[1:]])


def _serve(name: str, ranks: int, load: Callable[[], None], environment: dict[str, str]) -> None:
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
    become_rank(ForkServer(listening, environment, ranks).serve(), server)
