# Worked example: a cluster with Open MPI over UCX, two sockets of one NUMA domain each, 64 cores, SLURM with PMIx.
# Names and versions of modules are to be edited; not run by the tests, which have no such network.
module purge
module load gcc openmpi
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx
export UCX_TLS=rc,sm,self UCX_NET_DEVICES=mlx5_0:1       # ibv_devinfo lists the devices
export OMPI_MCA_hwloc_base_binding_policy=none           # srun binds; two binders fight

export OMP_PLACES=cores OMP_PROC_BIND=close
SITE_RANKS_PER_NODE=2
SITE_CPUS_PER_NODE=64
SITE_LAUNCHER="srun --mpi=pmix"
SITE_SRUN_OPTIONS="--distribution=block:block --cpu-bind=cores --mem-bind=local --hint=nomultithread"
# Without PMIx in SLURM: SITE_LAUNCHER=mpiexec SITE_MPIEXEC_OPTIONS="--map-by ppr:2:node --bind-to numa"
# export SBATCH_ACCOUNT=myproject SBATCH_PARTITION=standard
