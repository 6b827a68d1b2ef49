# shellcheck shell=bash
# ARCHER2 (EPCC, United Kingdom). Written from its documentation, not run there: https://docs.archer2.ac.uk/user-guide/hardware/
# Compute nodes do not see /home: the checkout and its environment belong on /work.
. "$jobs/sites/cray-ex.sh"

unset FI_CXI_RX_MATCH_MODE                               # its Slingshot is the first, with libfabric's verbs and RXM
export MPICH_OFI_STARTUP_CONNECT=1                       # ranks talk to all others: connections at the start, not one by one
# UCX in place of libfabric: swap craype-network-ofi craype-network-ucx and cray-mpich cray-mpich-ucx. It takes more memory, and EPCC
# says that libfabric is the more reliable one on very many nodes.
export SBATCH_PARTITION=standard SBATCH_QOS=standard
# export SBATCH_ACCOUNT=…
