# shellcheck shell=bash
# LUMI-C (CSC, Finland). Written from its documentation, not run there: https://docs.lumi-supercomputer.eu/hardware/lumic/
module load CrayEnv
. "$jobs/sites/cray-ex.sh"

export SBATCH_PARTITION=standard                         # whole nodes; small shares them
# export SBATCH_ACCOUNT=project_…
