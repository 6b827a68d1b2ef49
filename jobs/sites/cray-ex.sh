# shellcheck shell=bash
# Worked example: an HPE Cray EX with Slingshot and Cray MPICH, two sockets in eight NUMA domains, 128 cores, SLURM.
# Names and versions of modules are to be edited. Written from documentation: nobody has run it on such a machine.
module load PrgEnv-gnu
module swap cray-mpich cray-mpich-abi                    # the ABI of MPICH, which mpi4py's wheel wants
. "$project/.venv/bin/activate"                          # made with HPCGNN_MPI=site

export LD_LIBRARY_PATH=$CRAY_LD_LIBRARY_PATH:${LD_LIBRARY_PATH:-}
export MPI4PY_LIBMPI=$MPICH_DIR/lib-abi-mpich/libmpi.so.12
export MPICH_OFI_NIC_POLICY=NUMA                         # each rank uses the network adapter of its NUMA domain
export FI_CXI_RX_MATCH_MODE=hybrid                       # with many peers the adapter's lists fill up; then software matches

SITE_RANKS_PER_NODE=8
SITE_CPUS_PER_NODE=128
SITE_LAUNCHER="srun --mpi=cray_shasta"
SITE_SRUN_OPTIONS="--distribution=block:block --cpu-bind=cores --hint=nomultithread"
# export SBATCH_ACCOUNT=myproject SBATCH_PARTITION=standard
