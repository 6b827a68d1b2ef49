# shellcheck shell=bash
# AWS ParallelCluster with hpc7a.96xlarge. Written from its documentation, not run there: https://docs.aws.amazon.com/parallelcluster/
module load openmpi                                      # it comes with the image, and knows the network adapter EFA
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export FI_PROVIDER=efa
SITE_CPUS_PER_NODE=192                                   # no hardware threads; a job counts the NUMA domains
# export SBATCH_PARTITION=…                              # the name of the queue in the cluster's configuration
