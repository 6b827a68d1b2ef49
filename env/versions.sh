#!/usr/bin/env bash
# The quick tests with other versions of what the project needs, on a copy of the working tree.
#
#   bash env/versions.sh oldest     Python 3.11, and the floors that setup.cfg names
#   bash env/versions.sh newest     the newest Python that this machine has, and the newest of all packages
#   bash env/versions.sh oldest --part core     some parts alone (bash env/test.sh --help lists them)
#
# HPCGNN_TORCH   the version of torch (default: that of env/constraints.txt; other versions bring gigabytes of a GPU's libraries)
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
which=${1:-}
shift || true
case $which in
    oldest | newest) ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    *) echo "expected oldest or newest, got '$which'" >&2; exit 2 ;;
esac
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$project" && git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -cf - --ignore-failed-read) | tar -xf - -C "$copy"
torch=$(grep '^torch==' "$project/env/constraints.txt")
[ -z "${HPCGNN_TORCH:-}" ] || torch="torch==$HPCGNN_TORCH"
case $which in
    oldest)
        export HPCGNN_PYTHON=${HPCGNN_PYTHON:-python3.11}
        # What the tests need besides fits itself to these.
        floors=$(sed -n '/^install_requires/,/^$/s/^ *\([A-Za-z0-9_-]*\)>=\(.*\)$/\1==\2/p' "$project/setup.cfg" | grep -v '^torch==')
        printf '%s\n' "$floors" "$torch" > "$copy/env/constraints.txt"
        ;;
    newest)
        # A name that a version manager only reserves is no Python; its folder has some that no name leads to.
        for version in 3.14 3.13 3.12; do
            for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
                ! "$python" -c '' 2> /dev/null || export HPCGNN_PYTHON="${HPCGNN_PYTHON:-$python}"
            done
        done
        [ -n "${HPCGNN_PYTHON:-}" ] || { echo "newest: no Python newer than 3.11 on this machine: nothing to do"; exit; }
        # torch for another Python may bring along a GPU's libraries.
        free=$(df --output=avail --block-size=1G "$copy" | tail -1)
        [ "$free" -ge 15 ] || { echo "newest: expected 15 GiB free in ${TMPDIR:-/tmp}, got $free: nothing is tried"; exit; }
        echo "$torch" > "$copy/env/constraints.txt"
        ;;
esac
[ $# -gt 0 ] || set -- --part core --part kernels --part tools --part "ranks, first rooms" --part "ranks, other rooms"
echo "$which: $("$HPCGNN_PYTHON" --version), $torch${floors:+, ${floors//$'\n'/, }}"
# Tests of the repository itself need its history.
git -C "$project" rev-parse HEAD > /dev/null && git clone --quiet --bare "$project" "$copy/.git" && git -C "$copy" config core.bare false
git -C "$copy" reset --quiet
bash "$copy/env/test.sh" "$@"
