# shellcheck shell=bash
# Isambard 3 (University of Bristol, United Kingdom), nodes of two Grace processors. Written from its documentation, not run there:
# https://docs.isambard.ac.uk/specs/ The program has not run on any Arm processor (docs/kernels.md).
. "$jobs/sites/cray-ex.sh"

SITE_RANKS_PER_NODE=8                                    # four for each of two domains of 72 cores
SITE_CPUS_PER_NODE=144
# export SBATCH_PARTITION=…                              # sinfo shows the names
