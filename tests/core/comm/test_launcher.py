"""Variables of launchers and batch systems: the facts they hold about a process, and the values it takes from them."""

import os

import pytest

from hpcgnn.comm.launcher import check_shell, job_end_time, launch, node_of_job, place_without_mpi, threads_per_rank
from hpcgnn.errors import ConfigError

SRUN = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}
HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "6", "OMPI_COMM_WORLD_RANK": "2"}


@pytest.fixture
def environment(monkeypatch):
    """environment(variables): these are all that there are."""
    return lambda variables: monkeypatch.setattr(os, "environ", dict(variables))


MPICH = {**HYDRA, "MPI_LOCALNRANKS": "2"}
STEP_OF_TWO = {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "1"}
AGENT = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def ranks():
    """(the variable of the number of ranks, the rank, the number of ranks, that of the ranks of this node)."""
    here = launch()
    return here.variable, here.rank, here.size, here.local_size


def node_of_five():
    return node_of_job(5)


@pytest.mark.parametrize(
    "fact, variables, expected",
    [
        (ranks, {}, (None, 0, 1, 1)),
        (ranks, SRUN, ("SLURM_STEP_NUM_TASKS", 5, 8, None)),
        (ranks, HYDRA, ("PMI_SIZE", 3, 4, None)),
        (ranks, OPEN_MPI, ("OMPI_COMM_WORLD_SIZE", 2, 6, None)),
        (ranks, {"MV2_COMM_WORLD_SIZE": "2"}, ("MV2_COMM_WORLD_SIZE", 0, 2, None)),
        # A job of so many tasks has not started any yet: only its step has.
        (ranks, {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, (None, 0, 1, 1)),
        # mpiexec inside a shell of srun, or a job: every rank inherits the variables of the shell or the batch script.
        (ranks, {**SRUN, **HYDRA}, ("PMI_SIZE", 3, 4, None)),
        (ranks, {**OPEN_MPI, "PMI_SIZE": "", "SLURM_PROCID": "0"}, ("OMPI_COMM_WORLD_SIZE", 2, 6, None)),
        (ranks, {"PMI_SIZE": "four"}, (None, 0, 1, 1)),
        (ranks, {**MPICH, "PMI_RANK": "x"}, ("PMI_SIZE", 0, 4, 2)),
        (ranks, {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, ("OMPI_COMM_WORLD_SIZE", 2, 6, 3)),
        (ranks, {**AGENT, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, ("WORLD_SIZE", 0, 8, 4)),
        (ranks, STEP_OF_TWO, ("SLURM_STEP_NUM_TASKS", 5, 8, 2)),
        (ranks, {**STEP_OF_TWO, "SLURM_NODEID": "3"}, ("SLURM_STEP_NUM_TASKS", 5, 8, 1)),
        (ranks, {**STEP_OF_TWO, "SLURM_NODEID": "4"}, ("SLURM_STEP_NUM_TASKS", 5, 8, None)),
        (ranks, {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "many"}, ("SLURM_STEP_NUM_TASKS", 5, 8, None)),
        # Its daemons are started by srun, one on each node.
        (ranks, {**MPICH, **SRUN, "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, ("PMI_SIZE", 3, 4, 2)),
        (node_of_five, {}, (None, None)),
        (node_of_five, {"SLURM_MEM_PER_NODE": "1000", "SLURM_NTASKS_PER_NODE": "3"}, (1000 << 20, 3)),
        (node_of_five, {"SLURM_MEM_PER_NODE": "1000", "SLURM_JOB_NUM_NODES": "4"}, (1000 << 20, 2)),
        (
            node_of_five,
            {"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_NUM_NODES": "1"},
            (800 << 20, 5),
        ),
        (node_of_five, {"SLURM_MEM_PER_CPU": "100"}, (None, None)),
        (node_of_five, {"SLURM_MEM_PER_NODE": "0", "SLURM_NTASKS_PER_NODE": ""}, (None, None)),
        (job_end_time, {}, None),
        *((job_end_time, {"SLURM_JOB_END_TIME": text}, None) for text in ("", "soon", "-1")),
        (job_end_time, {"SLURM_JOB_END_TIME": "1763884800"}, 1763884800),
    ],
    ids=str,
)
def test_what_the_variables_say(environment, fact, variables, expected):
    environment(variables)
    assert fact() == expected


def test_a_shell_of_srun(environment):
    """Its only process has the variables of 8. The tasks themselves, and ranks of mpiexec inside, are not meant."""
    shell = {**SRUN, "SLURM_PTY_PORT": "29220", "SLURM_TASK_PID": "1"}
    environment(shell)
    with pytest.raises(ConfigError, match="=8, and this is the only process.*start ranks by mpiexec"):
        check_shell()
    own = {"SLURM_TASK_PID": str(os.getpid())}
    for more in (own, HYDRA, {"SLURM_STEP_NUM_TASKS": "1"}):
        environment(shell | more)
        check_shell()


@pytest.mark.parametrize(
    "variables, cores, sharers, expected",
    [
        ({}, 16, 4, 4),
        ({}, 16, 3, 5),  # no more threads than cores
        ({}, 2, 8, 1),  # at least one
        ({"SLURM_CPUS_PER_TASK": "3"}, 16, 4, 3),
        ({"OMP_NUM_THREADS": "2"}, 16, 4, 2),
        ({"SLURM_CPUS_PER_TASK": "3", "OMP_NUM_THREADS": "2"}, 16, 4, 3),
        ({"OMP_NUM_THREADS": "0"}, 16, 4, 4),
        ({"OMP_NUM_THREADS": "4,2"}, 16, 4, 4),  # OpenMP's list of nested levels
    ],
    ids=str,
)
def test_threads_per_rank(environment, variables, cores, sharers, expected):
    environment(variables)
    assert threads_per_rank(cores, sharers) == expected


BY_HAND = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500"}
RANKS = {"RANK": "1", "WORLD_SIZE": "4", **BY_HAND}


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, {"by": "no launcher", "rank": 0, "size": 1}),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, {"by": "mpiexec", "rank": 0, "size": 1}),
        (RANKS, {"by": "RANK and WORLD_SIZE", "rank": 1, "size": 4, "host": "10.0.0.7", "port": 29500}),
        ({**RANKS, "RANK": "0"}, {"serves": True}),
        # Its agent has opened the store.
        ({**RANKS, **AGENT, "RANK": "0"}, {"by": "torchrun", "rank": 0, "serves": False, "job": "hpcgnn/2"}),
        ({**SRUN, **BY_HAND}, {"by": "srun", "rank": 5, "size": 8, "host": "10.0.0.7"}),
        # A wrapper of each rank may set them, whatever started it.
        ({**HYDRA, **RANKS}, {"by": "mpiexec", "rank": 1, "size": 4}),
    ],
    ids=str,
)
def test_ranks_without_mpi(environment, variables, expected):
    environment(variables)
    found = place_without_mpi()
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "variables", [SRUN, MPICH, OPEN_MPI, {**MPICH, **BY_HAND}, {"RANK": "1", "WORLD_SIZE": "4"}], ids=str
)
def test_what_ranks_without_mpi_need_is_said(environment, variables):
    environment(variables)
    with pytest.raises(ConfigError, match=r"torchrun.*export MASTER_ADDR=.*MASTER_PORT=.*sbatch script") as caught:
        place_without_mpi()
    assert caught.value.everywhere
