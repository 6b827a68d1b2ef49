"""Facts from the launcher and the batch system about this process, and the MPI settings that depend on them.

The only reader of the variables of launchers (SLURM_*, OMPI_*, PMI_*, torchrun's).
"""

import mmap
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from hpcgnn.errors import ConfigError

IN_A_SHELL = "In a shell of `srun --pty` start ranks by mpiexec (MPICH's: mpiexec -launcher fork -n RANKS hpcgnn ...)"
# Where MPI libraries have the memory that the ranks of a node share; bytes there of each rank for MPICH, and for UCX
# below it if it finds room, and how much more UCX must find free for a sound choice.
_SHARED, _MPICH_BYTES, _UCX_BYTES, _UCX_ROOM = "/dev/shm", 1_057_344, 4_340_000, 16 << 20
# The variable that selects MPICH's network module.
_NETWORK_VARIABLES = ("MPIR_CVAR_CH4_NETMOD", "MPICH_CH4_NETMOD", "MPIR_PARAM_CH4_NETMOD")
# SLURM's come last: under mpiexec inside a job every rank inherits the values of the script or shell around it.
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
# Turns in which an idle thread of libgomp looks for work before it sleeps: about as long as it takes to wake it
# (docs/cluster.md has both).
SPINS = "2000"
# Variables by which the user sets how idle threads wait.
_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# Variables by which OpenMP binds threads when it loads.
_BINDING_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
FORK_SERVER = "HPCGNN_FORK_SERVER"
# torchrun's names are so common that they count only together with this one.
_TORCHRUN = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class Launch:
    """The launcher of this process, and its rank.

    Attributes:
        by: the launcher's name.
        node: a name of this node.
        job: a text that differs between starts.
        one_node: whether all ranks are known to be on one node.
        host, port: rank 0's address by the environment, for it to listen on, or None.
        pmi: file descriptor of the launcher's key-value space, or None.
    """

    by: str
    rank: int
    size: int
    node: str
    job: str = ""
    one_node: bool = False
    host: str | None = None
    port: int | None = None
    pmi: int | None = None


def launch() -> Launch:
    """Return the Launch of this process, for transports that MPI does not start. All values are of the innermost
    launcher.
    """
    host, port, world = _word("MASTER_ADDR") or None, _number("MASTER_PORT"), _number("WORLD_SIZE")
    if _number("RANK") is not None and world is not None and (_TORCHRUN in os.environ or (host and port)):
        if _TORCHRUN not in os.environ:
            return _launch("RANK and WORLD_SIZE", "RANK", world, f"{host}:{port}", None, host, port)
        job = _words(_TORCHRUN, "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")  # a store of its own has that port
        return _launch("torchrun", "RANK", world, job, _number("LOCAL_WORLD_SIZE"), host)
    pmi, size = _number("PMI_FD"), _number("PMI_SIZE")
    # srun --mpi=pmi2 has such a line too, but not the ranks of a node.
    if pmi is not None and size is not None and _number("MPI_LOCALNRANKS") is not None:
        return _launch("mpiexec", "PMI_RANK", size, "", _number("MPI_LOCALNRANKS"), host, port, pmi)
    size = _number("OMPI_COMM_WORLD_SIZE")
    if size is not None:
        local, first = _number("OMPI_COMM_WORLD_LOCAL_SIZE"), host or _first_node("SLURM_JOB_NODELIST")
        return _launch("mpirun", "OMPI_COMM_WORLD_RANK", size, _word("PMIX_NAMESPACE"), local, first, port)
    size = _number("SLURM_STEP_NUM_TASKS")
    if size is not None:
        job = _words("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        local = size if _number("SLURM_STEP_NUM_NODES") == 1 else None
        return _launch("srun", "SLURM_PROCID", size, job, local, host or _first_node("SLURM_STEP_NODELIST"), port)
    return _launch("no launcher", "", 1, "", 1)


def _launch(
    by: str,
    rank: str,
    size: int,
    job: str,
    local: int | None,
    host: str | None = None,
    port: int | None = None,
    pmi: int | None = None,
) -> Launch:
    """rank: its variable; local: how many ranks this node has."""
    node = f"{socket.gethostname()} {_word('SLURMD_NODENAME')}".strip()
    return Launch(by, _number(rank) or 0, size, node, job, local == size, host, port, pmi)


def _word(name: str) -> str:
    return os.environ.get(name, "")


def _words(*names: str) -> str:
    return "/".join(map(_word, names))


def _number(name: str) -> int | None:
    """The value of a variable if it is a whole number."""
    return int(_word(name)) if _word(name).isdigit() else None


def _first_node(variable: str) -> str | None:
    """The first name of SLURM's list: node07 of `node[07-09,12],login1`."""
    name, bracket, rest = _word(variable).partition("[")
    if "," in name or not bracket:
        return name.split(",")[0] or None
    inside, _, after = rest.partition("]")
    return name + inside.split(",")[0].split("-")[0] + after.split(",")[0]


def chosen_interface() -> str | None:
    """The network interface that the user chose for gloo (or several, by commas)."""
    return os.environ.get("GLOO_SOCKET_IFNAME") or None


def local_rank() -> int:
    """Return this rank's number within its node by the launcher, or 0."""
    names = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
    return next((value for value in map(_number, names) if value is not None), 0)


def expected_ranks() -> tuple[str | None, int]:
    """Return (variable, number of ranks) by the launcher, or (None, 1)."""
    for variable in (*(["WORLD_SIZE"] if _TORCHRUN in os.environ else []), *_SIZE_VARIABLES):
        if os.environ.get(variable, "").isdigit():
            return variable, int(os.environ[variable])
    return None, 1


def check_shell() -> None:
    """Raise ConfigError in a shell of `srun --pty`: it has the variables of all tasks of its step, and the others have
    ended. MPI would wait for them.
    """
    tasks = _number("SLURM_STEP_NUM_TASKS") or 1
    inside = any(name in os.environ for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE", _TORCHRUN))
    if tasks > 1 and "SLURM_PTY_PORT" in os.environ and not inside and _number("SLURM_TASK_PID") != os.getpid():
        raise ConfigError.on_all(f"SLURM_STEP_NUM_TASKS={tasks}, and this is the only process. {IN_A_SHELL}")


def launched_rank() -> int:
    """The rank that the launcher gave this process, before MPI is started; 0 if there was no launcher."""
    names = (*(["RANK"] if _TORCHRUN in os.environ else []), *_RANK_VARIABLES)
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


@dataclass(frozen=True)
class ForkPlan:
    """How the ranks of a node are forked.

    Attributes:
        socket: name of the server's socket: the same for all ranks of this node and job, and for no others.
        ranks: their number.
    """

    socket: str
    ranks: int


def fork_plan() -> ForkPlan | str | None:
    """How the ranks of this node are forked from one process; None if they are not, or why they cannot be.

    HPCGNN_FORK_SERVER=1 asks for it.
    """
    ranks, wanted = local_ranks(), _word(FORK_SERVER)
    if wanted in ("", "0") or ranks == 1:
        return None
    if wanted != "1":
        return f"{FORK_SERVER} is {wanted!r}, expected 0 or 1"
    if not hasattr(os, "pidfd_open"):
        return "this system has no handles of processes (pidfd, Linux 5.3)"
    if bound := next((name for name in _BINDING_VARIABLES if name in os.environ), None):
        return f"{bound} is set, so OpenMP would bind all ranks to the cores of the first"
    if ranks is None:
        return "the launcher does not say how many ranks this node has"
    here = launch()
    job = here.job or _launcher_process()
    return ForkPlan(f"@hpcgnn {os.getuid()} {here.node} {job}", ranks) if job else "the launcher's process is not known"


def _launcher_process() -> str:
    """The number of the process of Hydra that has started the ranks of this node; empty if there is none."""
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


def job_end_time() -> int | None:
    """When the batch system will end this job, in seconds since 1970, or None where it does not say."""
    text = os.environ.get("SLURM_JOB_END_TIME", "")
    return int(text) if text.isdigit() else None


def node_of_job(ranks: int) -> tuple[int | None, int | None]:
    """Return (bytes that the job has on a node, ranks on a node), each None if the batch system gives no value.

    Args:
        ranks: number of ranks of the job.
    """
    found = {}
    for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE", "NTASKS_PER_NODE", "JOB_NUM_NODES"):
        text = os.environ.get(f"SLURM_{name}", "")
        found[name] = int(text) if text.isdigit() and int(text) > 0 else None
    memory, each, cores = found["MEM_PER_NODE"], found["MEM_PER_CPU"], found["CPUS_ON_NODE"]
    if memory is None and each is not None and cores is not None:
        memory = each * cores
    on_node, nodes = found["NTASKS_PER_NODE"], found["JOB_NUM_NODES"]
    if on_node is None and nodes is not None:
        on_node = -(-ranks // nodes)
    return None if memory is None else memory << 20, on_node


def local_ranks() -> int | None:
    """How many ranks the innermost launcher started on this node; None where it does not say."""
    if _TORCHRUN in os.environ:
        return _number("LOCAL_WORLD_SIZE")
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        if _number(name) is not None:
            return _number(name)
    if _number("SLURM_STEP_NUM_TASKS") is not None:
        return _tasks_of_node(_word("SLURM_STEP_TASKS_PER_NODE"), _number("SLURM_NODEID") or 0)
    return 1 if expected_ranks()[1] == 1 else None


def _tasks_of_node(text: str, node: int) -> int | None:
    """The number for a node in SLURM's list: 4 for the nodes 0 to 2 of `4(x3),2`, 2 for node 3."""
    counts: list[int] = []
    for part in text.split(","):
        tasks, _, times = part.removesuffix(")").partition("(x")
        if not tasks.isdigit():
            return None
        counts += [int(tasks)] * int(times or 1)
    return counts[node] if node < len(counts) else None


def waiting(cores: int, physical: int, outside: int) -> dict[str, str]:
    """Return {variable: value} for the waits of idle OpenMP threads, to be set before the runtime is loaded.

    That is before the ranks have met. Threads of a rank with cores of its own look for work for a moment, and then
    sleep: waking them takes as long. All others sleep at once, since another rank needs the core. The user's settings
    stay.

    Args:
        cores: number of cores that this rank may use.
        physical: the same without hardware threads.
        outside: number of cores that its launcher may use, 0 if unknown.
    """
    policy = {} if "OMP_WAIT_POLICY" in os.environ else {"OMP_WAIT_POLICY": "passive"}
    local, node = local_ranks(), min(outside or cores, _number("SLURM_CPUS_ON_NODE") or cores + outside)
    if local is None or any(name in os.environ for name in _WAIT_VARIABLES):
        return policy
    threads = threads_per_rank(physical, 1 if cores < node else local)  # bound to cores of its own, or not
    return policy | ({"GOMP_SPINCOUNT": SPINS} if threads <= cores and threads * local <= node else {})


def threads_per_rank(cores: int, sharers: int) -> int:
    """Return the threads of a rank: SLURM_CPUS_PER_TASK, else OMP_NUM_THREADS, else its part of its cores.

    Args:
        cores: number of cores that this rank may use.
        sharers: number of ranks that share them.
    """
    for variable in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit() and int(os.environ[variable]) > 0:
            return int(os.environ[variable])
    return max(1, cores // sharers)


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
    return ConfigError(text) if local_rank() == 0 else ConfigError.on_all(text)


def check_shared_memory(version: str) -> None:
    """Raise ConfigError where MPICH would end in a bus error: /dev/shm has no room for the ranks of this node.

    Where it has room for MPICH alone, UCX would end in a segmentation fault. It is told to use no memory there, unless
    the user has chosen its transports. Call it before MPI starts.

    Args:
        version: the library's own words.
    """
    ranks = local_ranks() or 1
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
