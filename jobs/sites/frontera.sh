# shellcheck shell=bash
# Frontera, Cascade Lake nodes (TACC, United States). Written from its documentation, not run there: https://docs.tacc.utexas.edu/hpc/frontera/
# TACC asks for --nodes and --ntasks of every job: sbatch --nodes=4 --ntasks=32 …
module load gcc impi
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export MPI4PY_LIBMPI=libmpi.so.12                       # the module's, in whatever folder this version has it
SITE_RANKS_PER_NODE=8                                    # four for each of two domains of 28 cores
SITE_CPUS_PER_NODE=56
# TACC's launcher starts and binds the ranks of the job. With -n it wants -o too, and does not bind. exec: signals are for it, not for a shell.
ibrun_job() { shift 2; exec ibrun "$@"; }
SITE_LAUNCHER=ibrun_job
SITE_MPIEXEC_OPTIONS=" "                                 # it takes none of mpiexec's
export SBATCH_PARTITION=normal                           # 3 to 512 nodes; one and two belong to small. sbatch --mem is refused
# export SBATCH_ACCOUNT=…
