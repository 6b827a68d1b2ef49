#!/usr/bin/env bash
# The tests. The quick lane proves every promise once, on a machine with nothing installed.
#
#   bash env/test.sh              the quick lane: style, types, all rooms, job scripts under a SLURM of its own
#   bash env/test.sh --all        the slow lane as well: sanitizers, aarch64, wheels, other MPI libraries, all cases
#   bash env/test.sh --part NAME [-- PYTEST OPTIONS]     one part (--help lists them)
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
export HPCGNN_VECTOR_PATHS=${HPCGNN_VECTOR_PATHS:-runnable}
setup_environment plot,import,kaminpar,test,docs
cd "$project"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HPCGNN_KERNELS=${HPCGNN_KERNELS:-native}
# Hundreds of processes import the same files: the first compiles them, whatever this shell is used to.
unset PYTHONDONTWRITEBYTECODE
case " $* " in
    # A library that other sources built would fail its tests.
    *" --all "* | *oneCCL*) bash env/build-oneccl.sh || { echo "oneCCL's packages cannot be had: its tests are skipped" >&2; rm -rf .venv/lib/hpcgnn-oneccl; } ;;
esac
# Whatever becomes of the tests of job scripts, their own SLURM goes.
export HPCGNN_TEST_SLURM=/tmp/hpcgnn-slurm-tests-$$
trap '[ ! -d "$HPCGNN_TEST_SLURM" ] || HPCGNN_SLURM_DIR=$HPCGNN_TEST_SLURM bash env/slurm-local.sh down --force' EXIT
python tests/lanes.py "$@"
how_to_activate
