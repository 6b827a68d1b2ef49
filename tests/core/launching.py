"""Starting parallel jobs as a user does, with a limit on their time."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(sys.prefix) / "bin" / "mpiexec"
ROOT = Path(__file__).parents[2]
# A job that ends by itself takes some seconds, most of them for loading torch; one that hangs takes this long.
LIMIT_SECONDS = 90


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str
    seconds: float

    @property
    def errors(self):
        """The lines that report errors."""
        return [line for line in self.err.splitlines() if line.startswith("hpcgnn: error")]


def clean_environment(**more):
    """The tests themselves may have been started by a launcher, or by a batch system."""
    foreign = ("PMI", "HYDRA", "MPI", "OMPI", "SLURM", "SBATCH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def launched(ranks, command, options=()):
    """The words that start a command on this many ranks."""
    return [str(LAUNCHER if LAUNCHER.exists() else "mpiexec"), "-n", str(ranks), *options, *map(str, command)]


def launched_without_mpi(ranks, command):
    """(words, variables) of the same with the variables of torchrun."""
    words = launched(1, command)[1:]
    parts = [[":", *words[:2], "-env", "RANK", str(rank), *words[2:]] for rank in range(ranks)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    return [launched(1, ())[0], *sum(parts, [])[1:]], variables


def command_and_environment(ranks, *arguments, python=(sys.executable,), options=(), without_mpi=False, **environment):
    """(words, variables) that run `python ARGUMENTS` on this many ranks (0: without launcher, which has `options`)."""
    command, variables = [*map(str, (*python, *arguments))], {}
    if ranks and without_mpi:
        command, variables = launched_without_mpi(ranks, command)
    elif ranks:
        command = launched(ranks, command, options)
    return command, clean_environment(**variables, **environment)


def start(ranks, *arguments, cwd=ROOT, limit=LIMIT_SECONDS, **environment):
    """Run `python ARGUMENTS` on this many ranks (0: without launcher); fails if it takes longer than the limit."""
    command, clean = command_and_environment(ranks, *arguments, **environment)
    begin = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=limit)
    return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def train(ranks, *options, **environment):
    """Run `hpcgnn train OPTIONS`."""
    return start(ranks, "-m", "hpcgnn", "train", *options, **environment)
