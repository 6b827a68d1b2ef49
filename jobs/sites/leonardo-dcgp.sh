# shellcheck shell=bash
# Leonardo's DCGP nodes (CINECA, Italy). Written from its documentation, not run there: https://docs.hpc.cineca.it/hpc/leonardo.html
. "$jobs/sites/openmpi-ucx.sh"

SITE_CPUS_PER_NODE=112
export SBATCH_PARTITION=dcgp_usr_prod
# export SBATCH_ACCOUNT=…
