"""What the launcher and the batch system say about this process, and the settings of MPI that hang on it.

The only reader of the variables of launchers (SLURM_*, OMPI_*, PMI_*).
"""

import os
from types import ModuleType

# What MPICH reads its network module from.
_NETWORK_VARIABLES = ("MPIR_CVAR_CH4_NETMOD", "MPICH_CH4_NETMOD", "MPIR_PARAM_CH4_NETMOD")
_SIZE_VARIABLES = ("SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# SLURM's comes last: under mpiexec inside a job every rank inherits that of the batch script.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def expected_ranks() -> tuple[str | None, int]:
    """(variable, number of ranks) that the launcher says it started, or (None, 1)."""
    for variable in _SIZE_VARIABLES:
        if os.environ.get(variable, "").isdigit():
            return variable, int(os.environ[variable])
    return None, 1


def launched_rank() -> int:
    """The rank that the launcher gave this process, before MPI is started; 0 if there was no launcher."""
    return next((int(os.environ[name]) for name in _RANK_VARIABLES if os.environ.get(name, "").isdigit()), 0)


def job_end_time() -> int | None:
    """When the batch system will end this job, in seconds since 1970, or None where it does not say."""
    text = os.environ.get("SLURM_JOB_END_TIME", "")
    return int(text) if text.isdigit() else None


def slurm_step() -> str | None:
    """'JOB.STEP' of SLURM that this process belongs to, or None outside of one."""
    job, step = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_STEP_ID", "")
    return f"{job}.{step}" if job.isdigit() and step.isdigit() else None


def node_of_job(ranks: int) -> tuple[int | None, int | None]:
    """(bytes that a node of this job gives, how many of so many ranks it has), each None where the batch system does
    not say.
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


def threads_per_rank(cores: int, sharers: int) -> int:
    """Threads for a rank: SLURM_CPUS_PER_TASK, else OMP_NUM_THREADS, else its cores divided by the ranks that share
    them.
    """
    for variable in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit() and int(os.environ[variable]) > 0:
            return int(os.environ[variable])
    return max(1, cores // sharers)


def choose_network(MPI: ModuleType) -> None:
    """Have MPICH use libfabric (OFI) in place of UCX under `srun --mpi=pmi2`, where the library has both and the user
    chose none. To be called before MPI is started.

    MPICH tells the other nodes a rank's UCX address in a card of 4096 bytes, the rest of it whatever lay in memory, in
    pieces whose lengths depend on those bytes. SLURM (22.05) loses a piece of more than 1024 bytes: by chance, a start
    then fails or hangs ("mpi/pmi2: value not properly terminated in client request"). OFI's address has some 16 bytes.
    A library with UCX alone is left as it is, and so are ranks that mpiexec has started, which reads requests to their
    end.
    """
    device = next((line for line in MPI.Get_library_version().splitlines() if line.startswith("MPICH Device")), "")
    by_srun = {"PMI_FD", "SLURM_STEP_ID"} <= os.environ.keys() and "HYDI_CONTROL_FD" not in os.environ
    if by_srun and "ucx" in device and "ofi" in device and not any(name in os.environ for name in _NETWORK_VARIABLES):
        os.environ["MPIR_CVAR_CH4_NETMOD"] = "ofi"
