#!/usr/bin/env bash
# All tests: style, the serial ones, then the parallel ones at 1, 2, 3 and 4 ranks, one mpiexec for each.
#
#   bash env/test.sh [pytest options for every run]
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment plot,import,test
cd "$project"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HPCGNN_KERNELS=${HPCGNN_KERNELS:-native}
# Nothing can hang for longer than this, whatever happens inside (seconds).
limit=900

echo "== style"
flake8 hpcgnn partition_tools tests jobs setup.py
echo "== serial tests"
timeout "$limit" python -m pytest --ignore=tests/mpi "$@"
for ranks in 1 2 3 4; do
    echo "== parallel tests, $ranks ranks"
    timeout "$limit" mpiexec -n "$ranks" python -m pytest tests/mpi "$@"
done
echo "== all tests passed"
