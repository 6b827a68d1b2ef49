# shellcheck shell=bash
# MareNostrum 5, general purpose partition (BSC, Spain). Written from its documentation, not run there:
# https://www.bsc.es/supportkc/docs/MareNostrum5/intro
module purge                                             # a login shell has modules of its own
module load intel/2023.2.0 impi/2021.10.0
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export MPI4PY_LIBMPI=libmpi.so.12                       # the module's, in whatever folder this version has it
export I_MPI_PIN=off                                     # srun binds; two binders fight
SITE_RANKS_PER_NODE=8                                    # four for each of two domains of 56 cores
SITE_CPUS_PER_NODE=112
SITE_LAUNCHER=srun                                       # job scripts of its users name neither a PMI nor its library
SITE_SRUN_OPTIONS="--distribution=block:block --cpu-bind=cores --hint=nomultithread"
# export SBATCH_ACCOUNT=… SBATCH_QOS=gp_…                # both are needed; bsc_queues shows yours
