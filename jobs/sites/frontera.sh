# shellcheck shell=bash
# Frontera, Cascade Lake nodes (TACC, United States). Written from its documentation, not run there: https://docs.tacc.utexas.edu/hpc/frontera/
# TACC asks for --nodes and --ntasks of every job: sbatch --nodes=4 --ntasks=8 …
module load gcc impi
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export MPI4PY_LIBMPI=$I_MPI_ROOT/lib/release/libmpi.so
SITE_RANKS_PER_NODE=2
SITE_CPUS_PER_NODE=56
SITE_LAUNCHER=ibrun                                      # TACC's launcher, which also binds the ranks
SITE_MPIEXEC_OPTIONS=" "                                 # it takes none of mpiexec's
export SBATCH_PARTITION=normal
# export SBATCH_ACCOUNT=…
