#!/usr/bin/env bash
# Measures which lines of hpcgnn and partition_tools the tests of the quick lane reach, without those of job scripts and faults. It takes
# some 20 minutes; jobs that tests start count, too.
#
#   bash env/coverage.sh [FOLDER]     the table on the screen, and its pages in FOLDER (default: build/coverage)
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment plot,import,kaminpar,test,docs
cd "$project"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HPCGNN_KERNELS=${HPCGNN_KERNELS:-native}
folder=${1:-build/coverage}
mkdir -p "$folder"
export COVERAGE_FILE=$folder/.coverage
coverage erase
# A test that fails here fails in env/test.sh too, which says so.
mpiexec -n 2 python -m coverage run -m pytest -q tests/mpi -m "(processes or smoke) and not slow" || true
for part in kernels core partition_tools mpi extras docs report; do
    python -m coverage run -m pytest -q "tests/$part" -m "not slow" || true
done
coverage combine --quiet
coverage html --quiet --directory "$folder/pages"
coverage report --sort=cover
how_to_activate
