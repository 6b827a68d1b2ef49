"""`hpcgnn` with one fault built in: at a chosen stage, on a chosen rank, something goes wrong.

    python tests/faults/inject.py STAGE FAULT RANK TIMES -- train --graph …

TIMES: at which passage through the stage it happens (1 the first). The program itself knows nothing of this: the
functions that are the stages are wrapped here, in this process, before its command line is called. Serial passages (the
step on the small graph, which every rank takes by itself) do not count.
"""

import functools
import importlib
import os
import resource
import signal
import subprocess
import sys
import time

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
# stage: (module, attribute), a function that a rank passes in it.
STAGES = {
    "import": ("hpcgnn.__main__", "registry_choices"),
    "load": ("hpcgnn.graph.load", "read_edges"),
    "plan": ("hpcgnn.graph.local", "build_halo_plan"),
    "forward": ("hpcgnn.exchange.transfer", "Transfer.begin", "halo_forward"),
    "backward": ("hpcgnn.exchange.transfer", "Transfer.begin", "halo_backward"),
    "meeting": ("hpcgnn.comm.node_memory", "MpiNodeMemory.meet"),
    "reduction": ("hpcgnn.engine.optim", "FlatGradients.clip"),
    "step": ("hpcgnn.engine.optim", "Optimizer.step"),
    "evaluation": ("hpcgnn.tasks.labels", "Evaluator.scores"),
    "checkpoint": ("hpcgnn.engine.checkpoint", "_write_tensors"),
    "shutdown": ("hpcgnn.comm.run", "Session.finish"),
}
STOP_SECONDS = 3.0


def lose_memory():
    """From now on there is hardly any: the memory that the process has, and 1 MiB. Then use it up."""
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
    hoard = []
    while True:
        hoard.append(bytearray(1 << 22))


def fill_disk():
    """From now on no file of this process can be written, like on a full file system (whatever user runs this)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def stop(seconds=None):
    """Stand still like a process on a node that hangs; with seconds, somebody wakes it up then."""
    if seconds is not None:
        subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"], start_new_session=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def fail():
    raise RuntimeError("a fault that was put here")


FAULTS = {
    "raise": fail,
    "exit 0": lambda: sys.exit(0),
    "_exit 0": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": stop,
    "pause": lambda: stop(STOP_SECONDS),
    "hang": lambda: time.sleep(3600),
    "memory": lose_memory,
    "disk": fill_disk,
}


def happen(fault):
    """Leave a mark, for those who want to know whether the stage was reached, and fail."""
    if "FAULT_MARK" in os.environ:
        with open(os.environ["FAULT_MARK"], "w") as file:
            file.write(fault)
    FAULTS[fault]()


def install(stage, fault, times):
    """Wrap the function of a stage so that its `times`-th passage meets the fault first."""
    module, name, *kind = STAGES[stage]
    owner = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    inner, passed = getattr(owner, last), 0

    @functools.wraps(inner)
    def wrapper(*args, **kwargs):
        nonlocal passed
        if stage == "import" or _counts(args, kwargs, kind):
            passed += 1
            if passed == times:
                happen(fault)
        return inner(*args, **kwargs)

    setattr(owner, last, wrapper)


def _counts(args, kwargs, kind):
    """Whether this passage is one of the whole job, after its start, and not of the probe."""
    frame, started = sys._getframe(2), False
    while frame is not None:
        if frame.f_code.co_name == "probe_step":
            return False
        started |= frame.f_code.co_name == "run" and frame.f_locals.get("session") is not None
        frame = frame.f_back
    return started and (not kind or kind[0] in args)


def split_nodes(per_node):
    """Let this many consecutive ranks be a node of their own, for ranks that share memory."""
    from hpcgnn.comm import node_memory

    inner = node_memory.MpiNodeMemory.__init__

    def init(self, comm, ranks):
        inner(self, comm, ranks.Split(ranks.rank // per_node))

    node_memory.MpiNodeMemory.__init__ = init


def main(argv):
    at = argv.index("--")
    stage, fault, rank, times = argv[:at]
    mine = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    if mine == rank and fault != "none":
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        install(stage, fault, int(times))
    if "FAULT_PER_NODE" in os.environ:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        split_nodes(int(os.environ["FAULT_PER_NODE"]))
    from hpcgnn.__main__ import main as hpcgnn

    return hpcgnn(argv[at + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
