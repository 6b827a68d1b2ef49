# shellcheck shell=bash
# A machine about which nothing is known: the project's own environment if env/setup.sh made one, else the python on PATH.
# Copy this file for your cluster; everything site-specific belongs in it and nowhere else.
#
#   SITE_RANKS_PER_NODE   ranks of a node, such as its NUMA domains (lscpu | grep 'NUMA node(s)'); unset: a job counts the domains, and
#                         studies and dry runs take the sockets that SLURM knows
#   SITE_CPUS_PER_NODE    cores of a node, without hardware threads; unset: from SLURM
#   SITE_LAUNCHER         such as "srun --mpi=pmi2", "srun --mpi=pmix" or mpiexec; unset: found from the MPI library and srun --mpi=list
#   SITE_SRUN_OPTIONS     binding; unset: one block of cores for each rank, a thread for each core, where SLURM can bind
#   SITE_MPIEXEC_OPTIONS  such as "-ppn 2"; unset: so many on each node, each on its own cores, in the words of the MPI library
#   SBATCH_ACCOUNT, SBATCH_PARTITION, SBATCH_QOS, SBATCH_MEM_PER_NODE   for the sbatch of studies and dry runs: export them here. A sbatch
#                         that you type has not read this file; the dry run of train.sbatch prints it with them
if [ -z "${VIRTUAL_ENV:-}" ] && [ -r "$project/.venv/bin/activate" ]; then
    . "$project/.venv/bin/activate"
fi
