# shellcheck shell=bash
# LUMI-C (CSC, Finland). Written from its documentation, not run there: https://docs.lumi-supercomputer.eu/hardware/lumic/
module load CrayEnv
. "$jobs/sites/cray-ex.sh"

export SBATCH_PARTITION=standard                         # whole nodes; small shares them
export SBATCH_MEM_PER_NODE=224G                          # of 256: the rest is the system's
# export PMI_NO_PREINITIALIZE=y                          # if a start on some 512 nodes fails; LUMI says so of Fortran programs
# export SBATCH_ACCOUNT=project_…
