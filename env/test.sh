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
# One launch of so many ranks.
over() {
    local ranks=$1
    shift
    part mpiexec -n "$ranks" "${rank[@]}" -m pytest "$@"
}
# Files of tests/mpi by their names.
files() {
    local name
    for name; do echo tests/mpi/*/test_"$name".py; done
}
# Each test runs at 1, 2, 3 and 4 ranks, and each case of its parameters at one of them; HPCGNN_TEST_ALL=1 runs all cases at all. Other
# transports and MPI libraries have the cases of their number of ranks.
sharing=(--share-cases)
[ -z "${HPCGNN_TEST_ALL:-}" ] || sharing=()
# Of what hangs on the transport: one kind of run is resumed, that with batch norm, whose sums travel too.
one_kind="not warm-up"

# The parts. Operators and curves run at 1 to 4 ranks, schedules and messages at 2 and 3, whole jobs at 2: tests have their numbers as the
# mark `ranks`.
types() { mypy --no-error-summary hpcgnn partition_tools; }
package() { part python -m pytest tests/core "$@"; }
kernels() { part python -m pytest tests/kernels --ignore=tests/kernels/test_sanitized.py "$@"; }
tools() {
    part python -m pytest --ignore=tests/core --ignore=tests/kernels --ignore=tests/mpi --ignore=tests/jobs --ignore=tests/faults "$@"
}
sanitizers() { part python -m pytest tests/kernels/test_sanitized.py "$@"; }
faults() { part python -m pytest tests/faults "$@"; }
job_scripts() {
    # Whatever becomes of them, their own SLURM goes.
    export HPCGNN_TEST_SLURM=/tmp/hpcgnn-slurm-tests-$$
    trap 'HPCGNN_SLURM_DIR=$HPCGNN_TEST_SLURM bash env/slurm-local.sh down --force' EXIT
    part python -m pytest tests/jobs "$@"
}
ranks() {
    local number=$1
    shift
    over "$number" tests/mpi --by-marks "${sharing[@]}" "$@"
}
# Nodes of two and of three ranks: 3 × 2, 2 × 3, 4 × 2.
nodes() {
    local some="small and not alone or layers and star or odd and directed and dealt or (rgcn or rgat) and weighted and not averaged"
    # shellcheck disable=SC2046  # names of files, without blanks
    over 6 $(files node_buffers in_place_layers message_layers estimated_nodes) -k "$some" "$@" &&
        over 8 $(files node_buffers estimated_nodes) -k "pairs-1 or odd and 2-random and directed and dealt" "$@"
}
# A library of the other family: tags, threads and progress differ, and so does the launcher. Small files of messages, and whole jobs.
open_mpi() {
    time bash env/test-mpi.sh openmpi --ranks 2 --tests communicator,opening,stream,tma,curves,resume,evaluate -- \
        -k "$one_kind" "${sharing[@]}" "$@"
}
# Streams, operators and curves over torch.distributed; whole jobs and runs at 2 ranks. (tests/core and tests/jobs start it as a user does.)
gloo() {
    local number=$1 names=(stream operators curves) some="stream or operators or gcn-undirected or all_ranks"
    shift
    if [ "$number" = 2 ]; then
        names+=(resume evaluate tma training_traffic)
        some+=" or resume or evaluate or tma or training_traffic"
    fi
    # shellcheck disable=SC2046
    over "$number" --transport gloo $(files "${names[@]}") "${sharing[@]}" -k "($some) and $one_kind" "$@"
}
# shellcheck disable=SC2046
all_to_all() { over 3 --transport all-to-all $(files stream stale numbers) "${sharing[@]}" "$@"; }
# Verbs, streams and a curve over oneCCL, where its packages can be had. Its ranks spin, so that a test may take long beside other parts.
oneccl() {
    [ -e .venv/lib/hpcgnn-oneccl/libhpcgnn_oneccl.so ] || return 0
    # shellcheck disable=SC2046
    HPCGNN_TEST_LIMIT=300 part mpiexec -n 3 python -m pytest --transport oneccl $(files communicator stream curves) \
        -k "oneccl or stream or gcn-undirected" "$@"
}

# Three parts run beside each other, the longest first, so that no core is idle while a test waits: a fourth costs more in waits of ranks
# than it brings. A part's output appears when it ends.
beside=3
output=$(mktemp -d)
running=()
stop() {
    kill "${running[@]}" || true
    for each in "${running[@]}"; do pkill -P "$each" || true; done
    wait "${running[@]}" || true
    rm -rf "$output"
    exit 130
}
trap stop INT TERM
# Graphs that runs of any number of ranks train on are made once.
export HPCGNN_TEST_GRAPHS=$output/graphs
mkdir "$HPCGNN_TEST_GRAPHS"
code=0
while read -r -a words; do
    [ "${#running[@]}" -lt "$beside" ] || wait -n || code=$?
    file=$output/${#running[@]}
    (
        trap 'exit 130' TERM
        result=0
        {
            heading "${words[*]}"
            "${words[@]}" "$@" || result=$?
            heading "end of ${words[*]}"
        } > "$file" 2>&1
        flock "$output" cat "$file"
        exit "$result"
    ) < /dev/null &
    running+=($!)
done << END
job_scripts
package
ranks 2
ranks 4
ranks 3
tools
faults
kernels
sanitizers
open_mpi
nodes
oneccl
types
ranks 1
gloo 2
gloo 3
all_to_all
END
# As many as started before the last `wait -n` of the loop have ended.
for ((each = 0; each < beside; each++)); do wait -n || code=$?; done
rm -rf "$output"
[ "$code" = 0 ] || exit "$code"
heading "all tests passed"
how_to_activate
