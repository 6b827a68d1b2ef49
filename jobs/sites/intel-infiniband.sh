# shellcheck shell=bash
# Worked example: a CPU cluster with InfiniBand and Intel MPI, two sockets in four NUMA domains (sub-NUMA clustering), 96 cores.
# Names and versions of modules are to be edited; not run by the tests, which have no InfiniBand.
module purge
module load gcc intel-mpi
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export MPI4PY_LIBMPI=libmpi.so.12                       # the module's, in whatever folder this version has it
export I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so           # SLURM's, so that srun can start the ranks
export I_MPI_FABRICS=shm:ofi FI_PROVIDER=mlx             # InfiniBand through UCX, which chooses transports by the number of ranks
export I_MPI_PIN=off                                     # srun binds; two binders fight
# The halo exchange sends few large messages from a helper thread beside the computing ones.
export I_MPI_ASYNC_PROGRESS=0

# export OMP_PLACES=cores OMP_PROC_BIND=close            # binds threads inside of ranks as well; only where srun binds ranks
# export HPCGNN_FORK_SERVER=0                            # each rank imports torch by itself (docs/less-memory.md)
SITE_RANKS_PER_NODE=4
SITE_CPUS_PER_NODE=96
SITE_LAUNCHER="srun --mpi=pmi2"
SITE_SRUN_OPTIONS="--distribution=block:block --cpu-bind=cores --mem-bind=local --hint=nomultithread"
# export SBATCH_ACCOUNT=myproject SBATCH_PARTITION=standard
