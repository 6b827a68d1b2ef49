# shellcheck shell=bash
# MareNostrum 5, general purpose partition (BSC, Spain). Written from its documentation, not run there:
# https://www.bsc.es/supportkc/docs/MareNostrum5/intro
. "$jobs/sites/intel-infiniband.sh"

SITE_RANKS_PER_NODE=2
SITE_CPUS_PER_NODE=112
# export SBATCH_ACCOUNT=… SBATCH_QOS=gp_…                # both are needed; bsc_queues shows yours
