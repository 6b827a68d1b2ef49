#!/usr/bin/env bash
# All tests: style, the serial ones, the parallel ones at 1, 2, 3 and 4 ranks, one mpiexec for each, those of the job scripts under a
# real SLURM of virtual nodes, which they start and end (env/slurm-local.sh; where it cannot run they are skipped and say so), and faults.
#
#   bash env/test.sh [pytest options for every run]
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment plot,import,kaminpar,test,docs
cd "$project"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HPCGNN_KERNELS=${HPCGNN_KERNELS:-native}
# Hundreds of processes import the same files: the first compiles them, whatever this shell is used to.
unset PYTHONDONTWRITEBYTECODE
# Nothing can hang for longer than this, whatever happens inside (seconds).
limit=1800

# A library that other sources built would fail its tests.
bash env/build-oneccl.sh || { echo "oneCCL's packages cannot be had: its tests are skipped" >&2; rm -rf .venv/lib/hpcgnn-oneccl; }

# What comes next, and after how long.
heading() {
    printf '== %s (after %d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60))
}
heading style
ruff check --quiet .
ruff format --quiet --diff .
shellcheck --severity=warning .ci/run env/*.sh jobs/*.sh jobs/*.sbatch jobs/*/*.sh
codespell
# A part of the tests, with its time limit. What it says at the end is where processor time goes.
TIMEFORMAT='-- %R s, processor time %U s, of the system %S s'
part() { time timeout "$limit" "$@"; }
# Ranks of the tests are forked from one process, which has imported what they need. They are no children of this shell, and say themselves
# how much processor time they took. A launcher of the site may tell its ranks in another way who they are: there each imports by itself.
python=$project/.venv/bin/python
rank=("$python")
if [ -e .venv/bin/mpiexec ]; then
    rank=("$python" -ISs hpcgnn/fork_server/proxy.py "@hpcgnn tests $$" 1 "$python")
    coproc "$python" tests/faults/nursery.py "@hpcgnn tests $$" torch_geometric pytest
fi
# One launch of so many ranks. Several in a function are joined by &&: behind `|| code=$?` bash goes on after one that fails.
over() {
    local ranks=$1
    shift
    part mpiexec -n "$ranks" "${rank[@]}" -m pytest "$@"
}
# Operators and curves run at 1 to 4 ranks, schedules and messages at 2 and 3, whole jobs at 2: tests have their numbers as the mark `ranks`.
# Each test runs at 1, 2, 3 and 4 ranks, and each case of its parameters at one of them; HPCGNN_TEST_ALL=1 runs all cases at all. Other
# transports and MPI libraries have the cases of their number of ranks.
sharing=(--share-cases)
[ -z "${HPCGNN_TEST_ALL:-}" ] || sharing=()
parallel() {
    local ranks=$1
    shift
    heading "parallel tests, $ranks rank$([ "$ranks" = 1 ] || echo s)"
    over "$ranks" tests/mpi --by-marks "${sharing[@]}" "$@"
}
# Of what hangs on the transport: one kind of run is resumed, that with batch norm, whose sums travel too.
one_kind="not warm-up"
# Streams, operators and curves over torch.distributed; whole jobs and runs at 2 ranks. (tests/core and tests/jobs start it as a user does.)
over_gloo() {
    local ranks=$1 names=(stream operators curves) files some="stream or operators or gcn-undirected or all_ranks"
    shift
    if [ "$ranks" = 2 ]; then
        names+=(resume evaluate tma training_traffic)
        some+=" or resume or evaluate or tma or training_traffic"
    fi
    files=("${names[@]/#/tests/mpi/test_}")
    heading "parallel tests over gloo, $ranks ranks"
    over "$ranks" --transport gloo "${files[@]/%/.py}" "${sharing[@]}" -k "($some) and $one_kind" "$@"
}
# Verbs, streams and a curve over oneCCL, where its packages can be had. Its ranks spin, so that a test may take long beside other lanes.
over_oneccl() {
    local ranks=$1
    shift
    [ -e .venv/lib/hpcgnn-oneccl/libhpcgnn_oneccl.so ] || return 0
    heading "parallel tests over oneCCL, $ranks ranks"
    HPCGNN_TEST_LIMIT=300 part mpiexec -n "$ranks" python -m pytest --transport oneccl tests/mpi/test_{communicator,stream,curves}.py \
        -k "oneccl or stream or gcn-undirected" "$@"
}
# Three lanes beside each other, which take about as long, so that no core is idle while a test waits: a fourth costs more in waits of
# ranks than it brings. Tests of jobs and of faults mostly wait. The output of the latter two lanes is shown at the end.
first() {
    local code=0
    parallel 1 "$@" || code=$?
    parallel 2 "$@" || code=$?
    heading "serial tests of kernels, tools, reports and pages"
    part python -m pytest --ignore=tests/core --ignore=tests/mpi --ignore=tests/jobs --ignore=tests/faults \
        --ignore=tests/kernels/test_sanitized.py "$@" || code=$?
    return "$code"
}
second() {
    local code=0
    heading "types"
    mypy --no-error-summary hpcgnn partition_tools || code=$?
    heading "serial tests of the package"
    part python -m pytest tests/core "$@" || code=$?
    heading "kernels under sanitizers"
    part python -m pytest tests/kernels/test_sanitized.py "$@" || code=$?
    parallel 4 "$@" || code=$?
    return "$code"
}
third() {
    local code=0
    heading "tests of the job scripts"
    # Whatever becomes of them, their SLURM goes; one that was up before stays.
    bash env/slurm-local.sh status > /dev/null 2>&1 || trap 'bash env/slurm-local.sh down' EXIT
    part python -m pytest tests/jobs "$@" || code=$?
    heading "faults"
    part python -m pytest tests/faults "$@" || code=$?
    parallel 3 "$@" || code=$?
    heading "nodes of two and of three ranks: 3 × 2, 2 × 3, 4 × 2"
    local some="small and not alone or layers and star or odd and directed and dealt or (rgcn or rgat) and weighted and not averaged"
    over 6 tests/mpi/test_{node_buffers,in_place_layers,message_layers,estimated_nodes}.py -k "$some" "$@" || code=$?
    over 8 tests/mpi/test_node_buffers.py tests/mpi/test_estimated_nodes.py \
        -k "pairs-1 or odd and 2-random and directed and dealt" "$@" || code=$?
    # A library of the other family: tags, threads and progress differ, and so does the launcher. Small files of messages, and whole jobs.
    time bash env/test-mpi.sh openmpi --ranks 2 --tests communicator,opening,stream,tma,curves,resume,evaluate -- \
        -k "$one_kind" "${sharing[@]}" "$@" || code=$?
    over_gloo 2 "$@" || code=$?
    over_gloo 3 "$@" || code=$?
    over_oneccl 3 "$@" || code=$?
    return "$code"
}
said=$(mktemp -d)
lanes=()
# A lane that is told to end goes on with no further part, and takes its SLURM down.
lane() {
    (
        trap 'exit 130' TERM
        "$@"
    ) < /dev/null &
    lanes+=($!)
}
stop() {
    kill "${lanes[@]}" || true
    for each in "${lanes[@]}"; do pkill -P "$each" || true; done
    wait "${lanes[@]}" || true
    rm -rf "$said"
    exit 130
}
trap stop INT TERM
lane first "$@"
lane second "$@" > "$said/second" 2>&1
lane third "$@" > "$said/third" 2>&1
code=0
for each in "${lanes[@]}"; do wait "$each" || code=$?; done
cat "$said/second" "$said/third"
rm -rf "$said"
[ "$code" = 0 ] || exit "$code"
heading "all tests passed"
how_to_activate
