# shellcheck shell=bash
# Snellius, genoa nodes (SURF, Netherlands). Written from its documentation, not run there:
# https://servicedesk.surf.nl/wiki/display/WIKI/Snellius+hardware
SITE_MODULES="2024 OpenMPI/5.0.3-GCC-13.3.0"             # the year of the software stack, and the Open MPI of its foss/2024a
. "$jobs/sites/openmpi-ucx.sh"

unset SITE_RANKS_PER_NODE                                # a job counts the NUMA domains
unset SITE_LAUNCHER                                      # srun if SLURM has PMIx, else mpiexec
SITE_CPUS_PER_NODE=192                                   # rome: 128
export SBATCH_PARTITION=genoa
