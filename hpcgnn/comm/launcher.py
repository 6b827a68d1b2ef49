"""Facts from the launcher and the batch system about this process, and the MPI settings that depend on them.

The only reader of the variables of launchers (SLURM_*, OMPI_*, PMI_*, torchrun's).
"""

import mmap
import os
import socket
from types import ModuleType
from typing import NamedTuple

from hpcgnn.errors import ConfigError

IN_A_SHELL = "In a shell of `srun --pty` start ranks by mpiexec (MPICH's: mpiexec -launcher fork -n RANKS hpcgnn ...)"
# Where MPI libraries have the memory that the ranks of a node share; bytes there of each rank for MPICH, and for UCX
# below it if it finds room, and how much more UCX must find free for a sound choice.
_SHARED, _MPICH_BYTES, _UCX_BYTES, _UCX_ROOM = "/dev/shm", 1_057_344, 4_340_000, 16 << 20
# The variable that selects MPICH's network module.
_NETWORK_VARIABLES = ("MPIR_CVAR_CH4_NETMOD", "MPICH_CH4_NETMOD", "MPIR_PARAM_CH4_NETMOD")
_OF_TORCH = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_OF_WORLD = ("SIZE", "RANK", "LOCAL_SIZE", "LOCAL_RANK")
# {launcher: its variables of the number of ranks, of the rank, of the number of ranks of this node, of the rank in it}.
# SLURM's come late: under mpiexec inside a job every rank inherits the values of the script or shell around it.
_LAUNCHERS = {
    "torchrun": ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    "mpiexec": ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    "mpirun": tuple(f"OMPI_COMM_WORLD_{name}" for name in _OF_WORLD),
    "mpirun_rsh": tuple(f"MV2_COMM_WORLD_{name}" for name in _OF_WORLD),
    "srun": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", "SLURM_LOCALID"),
    "RANK and WORLD_SIZE": ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
}
# torchrun's names are so common that they count first only together with this one.
_TORCHRUN = "TORCHELASTIC_RUN_ID"


class Launch(NamedTuple):
    """The launcher of this process, and its rank.

    Attributes:
        by: the launcher's name.
        variable: the variable with the number of ranks, or None.
        local_rank: this rank's number within its node.
        local_size: number of ranks of this node, or None where the launcher does not say.
    """

    by: str = "no launcher"
    variable: str | None = None
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int | None = 1


def launch() -> Launch:
    """The Launch of this process by the innermost launcher, before any library is started."""
    for by, (variable, rank, local_size, local_rank) in _LAUNCHERS.items():
        size = _number(variable)
        if size is None or (variable == "WORLD_SIZE" and not _is_of_torch(by)):
            continue
        local = 1 if size == 1 else _number(local_size)
        if local is None and _number("SLURM_STEP_NUM_TASKS") is not None:
            local = _tasks_of_node(_word("SLURM_STEP_TASKS_PER_NODE"), _number("SLURM_NODEID") or 0)
        return Launch(by, variable, _number(rank) or 0, size, _number(local_rank) or 0, local)
    return Launch()


def _is_of_torch(by: str) -> bool:
    """Whether the variables of torchrun are of this launcher."""
    return _TORCHRUN in os.environ if by == "torchrun" else all(map(_word, _OF_TORCH))


class RankPlace(NamedTuple):
    """A rank of a job without MPI, and the store by which the ranks meet.

    Attributes:
        by: the launcher's name.
        node: a name of this node.
        host, port: of the store.
        serves: whether this rank has to open the store.
        job: a prefix of the keys of this start.
    """

    by: str
    rank: int
    size: int
    node: str
    host: str
    port: int
    serves: bool
    job: str


def place_without_mpi() -> RankPlace:
    """The RankPlace of this process, by torchrun's variables; srun has the rank and the number of ranks.

    Raises:
        ConfigError: on all ranks, without these variables.
    """
    here = launch()
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if (rank is None or size is None) and (here.by == "srun" or here.size == 1):
        rank, size = here.rank, here.size
    host, port = _word("MASTER_ADDR"), _number("MASTER_PORT")
    if size != 1 and (rank is None or size is None or not host or port is None):
        raise ConfigError.on_all(
            f"--comm torch needs {', '.join(_OF_TORCH)}, as torchrun sets them, and {here.by} ({here.size} ranks) has "
            "not; start ranks by torchrun, or by srun after `export MASTER_ADDR=$(scontrol show hostnames | head -1) "
            "MASTER_PORT=29500` in the sbatch script, or use --comm mpi (docs/cluster.md)"
        )
    node = f"{socket.gethostname()} {_word('SLURMD_NODENAME')}".strip()
    of_agent = _word("TORCHELASTIC_USE_AGENT_STORE") == "True"
    job = f"hpcgnn/{_word('TORCHELASTIC_RESTART_COUNT')}"
    return RankPlace(here.by, rank or 0, size or 1, node, host, port or 0, rank == 0 and not of_agent, job)


def _word(name: str) -> str:
    return os.environ.get(name, "")


def _number(name: str) -> int | None:
    """The value of a variable if it is a whole number."""
    return int(_word(name)) if _word(name).isdigit() else None


def chosen_interface() -> str | None:
    """The network interface that the user chose for gloo (or several, by commas)."""
    return _word("GLOO_SOCKET_IFNAME") or None


def check_shell() -> None:
    """Raise ConfigError in a shell of `srun --pty`: it has the variables of all tasks of its step, and the others have
    ended. MPI would wait for them.
    """
    here = launch()
    if here.by == "srun" and here.size > 1 and _word("SLURM_PTY_PORT") and _number("SLURM_TASK_PID") != os.getpid():
        raise ConfigError.on_all(f"{here.variable}={here.size}, and this is the only process. {IN_A_SHELL}")


def job_end_time() -> int | None:
    """When the batch system will end this job, in seconds since 1970, or None where it does not say."""
    return _number("SLURM_JOB_END_TIME")


def node_of_job(ranks: int) -> tuple[int | None, int | None]:
    """Return (bytes that the job has on a node, ranks on a node), each None if the batch system gives no value.

    Args:
        ranks: number of ranks of the job.
    """
    names = ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE", "NTASKS_PER_NODE", "JOB_NUM_NODES")
    memory, each, cores, on_node, nodes = (_number(f"SLURM_{name}") or None for name in names)
    if memory is None and each is not None and cores is not None:
        memory = each * cores
    if on_node is None and nodes is not None:
        on_node = -(-ranks // nodes)
    return None if memory is None else memory << 20, on_node


def _tasks_of_node(text: str, node: int) -> int | None:
    """The number for a node in SLURM's list: 4 for the nodes 0 to 2 of `4(x3),2`, 2 for node 3."""
    counts: list[int] = []
    for part in text.split(","):
        tasks, _, times = part.removesuffix(")").partition("(x")
        if not tasks.isdigit():
            return None
        counts += [int(tasks)] * int(times or 1)
    return counts[node] if node < len(counts) else None


def threads_per_rank(cores: int, sharers: int) -> int:
    """Return the threads of a rank: SLURM_CPUS_PER_TASK, else OMP_NUM_THREADS, else its part of its cores.

    Args:
        cores: number of cores that this rank may use.
        sharers: number of ranks that share them.
    """
    return _number("SLURM_CPUS_PER_TASK") or _number("OMP_NUM_THREADS") or max(1, cores // sharers)


def chosen_network() -> str | None:
    """The network module that MPICH is to use, if one was chosen."""
    return os.environ.get(_NETWORK_VARIABLES[0])


def choose_network(MPI: ModuleType) -> None:
    """Make MPICH use libfabric (OFI) in place of UCX under `srun --mpi=pmi2`. Call it before MPI starts.

    It applies if the library has both and the user chose none. MPICH sends a rank's UCX address to other nodes in a
    card of 4096 bytes, padded with stale memory. The card travels in pieces, whose lengths depend on its bytes. SLURM
    (22.05) loses a piece of more than 1024 bytes. By chance, a start then fails or hangs ("mpi/pmi2: value not properly
    terminated in client request"). OFI's address has some 16 bytes. A library with UCX alone is left as it is. So are
    ranks started by mpiexec, which reads requests to their end.
    """
    device = next((line for line in MPI.Get_library_version().splitlines() if line.startswith("MPICH Device")), "")
    by_srun = {"PMI_FD", "SLURM_STEP_ID"} <= os.environ.keys() and "HYDI_CONTROL_FD" not in os.environ
    if by_srun and "ucx" in device and "ofi" in device and not any(name in os.environ for name in _NETWORK_VARIABLES):
        os.environ["MPIR_CVAR_CH4_NETMOD"] = "ofi"


def error_of_node(text: str) -> ConfigError:
    """The error that all ranks of a node find alike: its first rank alone says it."""
    return ConfigError(text) if launch().local_rank == 0 else ConfigError.on_all(text)


def check_shared_memory(version: str) -> None:
    """Raise ConfigError where MPICH would end in a bus error: /dev/shm has no room for the ranks of this node.

    Where it has room for MPICH alone, UCX would end in a segmentation fault. It is told to use no memory there, unless
    the user has chosen its transports. Call it before MPI starts.

    Args:
        version: the library's own words.
    """
    ranks = launch().local_size or 1
    needed = ranks * _MPICH_BYTES + mmap.PAGESIZE
    try:
        found = os.statvfs(_SHARED)
    except OSError:
        return
    free = found.f_bavail * found.f_frsize
    if not version.startswith("MPICH") or not found.f_blocks:  # no blocks: without a limit
        return
    if free < needed:
        raise error_of_node(
            f"{_SHARED} of {socket.gethostname()} has {free >> 10:,} KiB free; MPICH needs {-(-needed >> 10):,} KiB "
            f"for the ranks of a node ({ranks}): make it larger (docker run --shm-size=1g), start fewer ranks, or use "
            "--comm torch"
        )
    if "ucx" in version and free < needed + ranks * _UCX_BYTES + _UCX_ROOM:
        os.environ.setdefault("UCX_TLS", "^posix")
