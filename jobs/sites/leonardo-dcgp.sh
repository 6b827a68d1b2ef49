# shellcheck shell=bash
# Leonardo's DCGP nodes (CINECA, Italy). Written from its documentation, not run there: https://docs.hpc.cineca.it/hpc/leonardo.html
SITE_MODULES=openmpi/4.1.6--gcc--12.2.0                  # brings its gcc
. "$jobs/sites/openmpi-ucx.sh"

unset SITE_LAUNCHER                                      # srun if SLURM has PMIx, else mpiexec
SITE_RANKS_PER_NODE=8                                    # four for each of two domains of 56 cores
SITE_CPUS_PER_NODE=112
export SBATCH_PARTITION=dcgp_usr_prod
# export SBATCH_ACCOUNT=…
