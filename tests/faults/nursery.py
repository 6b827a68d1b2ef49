"""Ranks that start in no time: forked from a process that has loaded torch. So hundreds of jobs take minutes.

It is the fork server of the program (`hpcgnn/fork_server`), for many jobs in place of one. It also serves other
programs than `hpcgnn`, and faults. To the launcher and to the rest of the job its proxies are the ranks. Their
curves.png is empty: drawing takes longer than all else of a small job. The tests of tests/report draw it, and so does
each job with its own start.
"""

import atexit
import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import sys
from pathlib import Path

from inject import main as run_with_fault

import hpcgnn.__main__
from hpcgnn.fork_server.proxy import SIGNALS
from hpcgnn.fork_server.server import ForkServer, become_rank, listen


def run(arguments):
    """Run the words of the proxy: `-m hpcgnn …`, `-c PROGRAM …` or `SCRIPT.py …`, read as Python reads them, or a fault
    and its job.
    """
    if arguments[0].endswith(".py"):
        sys.path[0], sys.argv = os.path.dirname(arguments[0]), arguments
        runpy.run_path(arguments[0], run_name="__main__")
        return 0
    if arguments[0] not in ("-m", "-c"):
        return run_with_fault(arguments)
    sys.path[0], sys.argv = os.getcwd(), [arguments[0], *arguments[2:]]
    if arguments[0] == "-m":
        sys.modules.pop(f"{arguments[1]}.__main__", None)  # or runpy warns of it
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    return 0


def code_of(leaving):
    """The exit code of a SystemExit."""
    return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)


def live(request, server):
    """Be the rank, and end it as Python does, without taking its modules apart; never returns."""
    code = 1
    try:
        become_rank(request, server)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        code = run(request.arguments) or 0
    except SystemExit as leaving:
        code = code_of(leaving)
    except BaseException:
        try:
            sys.excepthook(*sys.exc_info())
        except SystemExit as leaving:
            code = code_of(leaving)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not _exit: MPICH takes its leave of the launcher in a handler of the C library's.
        ctypes.CDLL(None).exit(code)


def undrawn(run_dir):
    """The curves of a run, without a line in them."""
    path = Path(run_dir) / "curves.png"
    path.touch()
    return path


def serve(path, *modules):
    """Fork a rank for every proxy that asks, until the process that started this one ends.

    modules: further imports of ranks, where they are installed. They come before torch, for some need all of them.
    `-NAME` cannot be imported.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    hpcgnn.__main__.set_process_policies()
    for name in modules:
        if name.startswith("-"):
            sys.modules[name[1:]] = None
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    hpcgnn.__main__.load_all()
    from hpcgnn.engine import summary

    summary.draw_curves = undrawn
    atexit._clear()  # a rank has no part in the end of this process
    server = os.getpid()
    live(ForkServer(listen(path)).serve(), server)


if __name__ == "__main__":
    serve(*sys.argv[1:])
