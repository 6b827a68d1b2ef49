# shellcheck shell=bash
# Worked example: a cluster with Open MPI over UCX, two sockets of one NUMA domain each, 64 cores, SLURM with PMIx.
# Names and versions of modules are to be edited; not run by the tests, which have no such network.
module purge
# SITE_MODULES: of a machine whose file sources this one. What is loaded before the line above is gone.
# shellcheck disable=SC2086
module load ${SITE_MODULES:-gcc openmpi}
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx
# UCX chooses devices and transports: the adapter next to the rank, and on large jobs connections that do not grow with the ranks. rc
# alone keeps a connection to each of the other ranks. To insist on it, where `ucx_info -d` lists dc_mlx5:
# export UCX_TLS=dc_x,sm,self
export OMPI_MCA_hwloc_base_binding_policy=none           # srun binds; two binders fight

# export OMP_PLACES=cores OMP_PROC_BIND=close            # binds threads inside of ranks as well; only where srun binds ranks
SITE_RANKS_PER_NODE=2
SITE_CPUS_PER_NODE=64
SITE_LAUNCHER="srun --mpi=pmix"
SITE_SRUN_OPTIONS="--distribution=block:block --cpu-bind=cores --mem-bind=local --hint=nomultithread"
# Without PMIx in SLURM: SITE_LAUNCHER=mpiexec, which then binds ranks itself, and no binding policy above.
# export SBATCH_ACCOUNT=myproject SBATCH_PARTITION=standard
