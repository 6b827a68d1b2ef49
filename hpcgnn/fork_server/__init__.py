"""One import for all ranks of a node: `HPCGNN_FORK_SERVER=1`.

After its imports a process has some 150 MiB of its own: torch registers operators on the heap, and makes modules of
Python. Here the first rank of a node forks a server, which imports, and forks the ranks. So the pages are
shared, and one process of a node opens the files. The processes that the launcher has started stay as proxies
(`proxy.py`): they pass signals on, and end as their ranks do.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hpcgnn.comm.launch.launcher import ForkPlan, fork_plan, local_rank
from hpcgnn.fork_server.proxy import SIGNALS
from hpcgnn.terminal import tell


def enter(load: Callable[[], None], listen: Callable[[], None]) -> None:
    """Return in the rank: in this process, or in a fork of the server's, where HPCGNN_FORK_SERVER=1 asks for one.

    Args:
        load: imports the modules of a rank, and starts nothing.
        listen: has the rank note signals.
    """
    plan = fork_plan()
    if not isinstance(plan, ForkPlan):
        if plan is not None and local_rank() == 0:
            tell(f"hpcgnn: warning: no fork server: {plan}; each rank imports its modules itself", sys.stderr)
        listen()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    environment = dict(os.environ)
    if local_rank() != 0 or os.fork() != 0:
        _become_proxy(plan)
    _serve(plan, load, environment)
    listen()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become_proxy(plan: ForkPlan) -> NoReturn:
    skip = len(sys.orig_argv) - len(sys.argv) + 1
    proxy = [sys.executable, "-ISs", str(Path(__file__).with_name("proxy.py")), plan.socket, str(skip)]
    os.execv(sys.executable, [*proxy, sys.executable, *sys.orig_argv[1:]])


def _serve(plan: ForkPlan, load: Callable[[], None], environment: dict[str, str]) -> None:
    """Be the server, and return in its ranks."""
    from hpcgnn.fork_server.server import ForkServer, become_rank, listen

    channel = os.environ.pop("PMI_FD", "")
    if channel.isdigit():
        os.close(int(channel))  # or the launcher would not see that the first rank has closed it
    listening = listen(plan.socket)
    load()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    server = os.getpid()
    become_rank(ForkServer(listening, environment, plan.ranks).serve(), server)
