# shellcheck shell=bash
# Snellius, genoa nodes (SURF, Netherlands). Written from its documentation, not run there:
# https://servicedesk.surf.nl/wiki/display/WIKI/Snellius+hardware
module load 2024                                         # the year of the software stack
. "$jobs/sites/openmpi-ucx.sh"

unset SITE_RANKS_PER_NODE                                # a job counts the NUMA domains
SITE_CPUS_PER_NODE=192                                   # rome: 128
export SBATCH_PARTITION=genoa
