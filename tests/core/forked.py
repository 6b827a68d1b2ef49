"""Starting parallel jobs for tests that are not about the start: `launching`, without the seconds for loading torch.

Launcher, environment, output and exit codes are the same. The ranks are forked from a process that has loaded a rank's
imports (`tests/faults/nursery.py`). This is not for choices made during loading, nor for limits of memory.
"""

import atexit
import contextlib
import functools

from faults import harness

from . import launching

#: The server, until this process ends. `atexit` alone must not hold it: from Python 3.13 a child that `multiprocessing`
#: forks drops what is registered there, and would so remove the socket.
_OPEN = contextlib.ExitStack()
atexit.register(_OPEN.close)


@functools.cache
def server(*modules):
    """The socket of the process that forks the ranks: one for all tests, from the first that needs it on."""
    return str(_OPEN.enter_context(harness.nursery(*modules)))


def start(ranks, *arguments, modules=(), **options):
    """`launching.start`; arguments: `-m hpcgnn …`, `-c PROGRAM …` or `SCRIPT.py …`. modules: of the server
    (`nursery.serve`).
    """
    return launching.start(ranks, *arguments, python=harness.proxy(server(*modules)), **options)


def train(ranks, *options, **environment):
    """Run `hpcgnn train OPTIONS`."""
    return start(ranks, "-m", "hpcgnn", "train", *options, **environment)
