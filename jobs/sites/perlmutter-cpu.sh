# shellcheck shell=bash
# Perlmutter's CPU nodes (NERSC, United States). Written from its documentation, not run there: https://docs.nersc.gov/systems/perlmutter/architecture/
. "$jobs/sites/cray-ex.sh"

export SBATCH_CONSTRAINT=cpu SBATCH_QOS=regular
# export SBATCH_ACCOUNT=m…
