"""A parallel job that trains several times, each time slowed down by something else: loading torch is what takes the
time.

    python slowing.py FOLDER GRAPH SLOWDOWN …

Each SLOWDOWN of `SLOWDOWNS` leaves its run directory in FOLDER. `shared cores` binds all ranks to one core before they
start, and must be alone.
"""

import contextlib
import mmap
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

# Of an epoch, far above what one of the small graph takes on a busy machine.
SECONDS = 0.25
OPTIONS = {"model": "sage", "layers": 2, "hidden": 32, "epochs": 5, "eval_every": 0, "checkpoint_every": 0, "seed": 1}


@contextlib.contextmanager
def before(place, wait):
    """While the body runs, `wait()` is called before the function at 'module.Class.function'."""
    module, *path = place.split(":")
    owner = __import__(module, fromlist=["_"])
    *path, last = path[0].split(".")
    for part in path:
        owner = getattr(owner, part)
    inner = getattr(owner, last)

    def late(*args, **kwargs):
        wait()
        return inner(*args, **kwargs)

    with mock.patch.object(owner, last, late):
        yield


def pause():
    time.sleep(SECONDS)


def pause_for(share):
    """What a rank with this share of the graph takes, where a rank with half of it takes SECONDS."""
    time.sleep(2 * SECONDS * share)


def fault_pages():
    """Touch fresh memory, page by page, as a program that gives its memory back does in every epoch."""
    size = 20_000 * mmap.PAGESIZE
    for _ in range(5):
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                memory.madvise(mmap.MADV_NOHUGEPAGE)
            memory[:: mmap.PAGESIZE] = bytes(size // mmap.PAGESIZE)


LOSS = "hpcgnn.tasks.objective:Objective.local_loss"


def slow_rank(session):
    """The last rank takes longer for the same work."""
    return (before(LOSS, pause) if session.comm.rank == session.comm.size - 1 else contextlib.nullcontext()), {}


def slow_link(session):
    """Every message takes long on its way."""
    from slow_link import SlowLink

    session.comm = SlowLink(session.comm, rate=1e12, latency=SECONDS / 2)
    return contextlib.nullcontext(), {}


def bad_map(session):
    """Rank 0 has nine tenths of the graph, and work takes as long as that of a larger one."""
    import hpcgnn.app.bring_up as job

    choose, share = job.choose_map, []

    def uneven(file, config, comm):
        name, ranks = choose(file, config, comm)
        ranks = ranks.copy()
        ranks[:] = 1
        ranks[: 9 * len(ranks) // 10] = 0
        share[:] = [(ranks == comm.rank).mean()]
        return name, ranks

    slowed = contextlib.ExitStack()
    slowed.enter_context(mock.patch.object(job, "choose_map", uneven))
    slowed.enter_context(before(LOSS, lambda: pause_for(*share)))
    return slowed, {"prune": "none"}


SLOWDOWNS = {
    "nothing": lambda session: (contextlib.nullcontext(), {}),
    "shared cores": lambda session: (contextlib.nullcontext(), {"hidden": 256, "epochs": 8}),
    "slow rank": slow_rank,
    "slow link": slow_link,
    "bad map": bad_map,
    "tiny buffers": lambda session: (contextlib.nullcontext(), {"halo_buffer": 0.005, "layers": 3}),
    "slow evaluation": lambda session: (
        before("hpcgnn.tasks.evaluator:Evaluator.scores", pause),
        {"eval_every": 1},
    ),
    "slow disk": lambda session: (before("hpcgnn.engine.epochs:save_checkpoint", pause), {"checkpoint_every": 1}),
    "page faults": lambda session: (before(LOSS, fault_pages), {}),
}


def main(folder, graph, *names):
    if names == ("shared cores",):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from hpcgnn.__main__ import registry_choices, set_process_policies

    set_process_policies()
    from hpcgnn.app.train import train
    from hpcgnn.comm.launch.run import run
    from hpcgnn.config import make_config

    def all_of_them(started):
        for name in names:
            near = {"ranks_on_node": started.ranks_on_node, "node": started.node}
            session = SimpleNamespace(comm=started.comm, threads=started.threads, **near)
            slowed, options = SLOWDOWNS[name](session)
            config = make_config(
                {**OPTIONS, "graph": graph, "run_dir": f"{folder}/{name.replace(' ', '-')}", **options},
                registry_choices(),
            )
            with slowed:
                train(config, session)
        return 0

    return run(all_of_them)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
