# shellcheck shell=bash
# JURECA-DC (Jülich, Germany). Written from its documentation, not run there: https://apps.fz-juelich.de/jsc/hps/jureca/
module purge
module load Stages/2025 GCC/13.3.0 ParaStationMPI/5.11.0-1-mt # -mt: the threadsafe build
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export MPI4PY_LIBMPI=$EBROOTPSMPI/lib/libmpi.so          # ParaStation MPI has the ABI of MPICH
SITE_RANKS_PER_NODE=8
SITE_CPUS_PER_NODE=128
SITE_LAUNCHER=srun                                       # Jülich's SLURM starts ParaStation MPI without --mpi
SITE_SRUN_OPTIONS="--distribution=block:block --cpu-bind=cores --hint=nomultithread"
export SBATCH_PARTITION=dc-cpu
# export SBATCH_ACCOUNT=…
