# shellcheck shell=bash
# ARCHER2 (EPCC, United Kingdom). Written from its documentation, not run there: https://docs.archer2.ac.uk/user-guide/hardware/
# Compute nodes do not see /home: the checkout and its environment belong on /work.
. "$jobs/sites/cray-ex.sh"

export SBATCH_PARTITION=standard SBATCH_QOS=standard
# export SBATCH_ACCOUNT=…
