#!/usr/bin/env bash
# The quick tests with other versions of what the project needs, on a copy of the working tree.
#
#   bash env/versions.sh oldest     Python 3.11, and the floors that setup.cfg names
#   bash env/versions.sh newest     Python 3.14, of this machine or (as root, with debootstrap) of Debian's unstable suite, or the newest
#                                   Python here; the newest of all packages
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

# The working tree, and the history, which tests of the repository itself need, in a new folder.
copy_to() {
    mkdir -p "$1"
    (cd "$project" && git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -cf - --ignore-failed-read) | tar -xf - -C "$1"
    git clone --quiet --bare "$project" "$1/.git" && git -C "$1" config core.bare false && git -C "$1" reset --quiet
}

# Make a root of Debian's unstable suite, which has Python 3.14.
make_root() {
    local packages=python3.14,python3.14-dev,python3.14-venv,ca-certificates,gcc,git,libc6-dev,procps
    debootstrap --variant=minbase --include="$packages" sid "$root" > "$copy/debootstrap.log" && return
    echo "newest: no root of Debian's unstable suite: $(tail -1 "$copy/debootstrap.log")" >&2
    return 1
}

# Run this script there. What it mounts goes with its namespace.
in_root() {
    cp -L /etc/hosts /etc/resolv.conf "$root/etc/"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    copy_to "$root/hpcgnn"
    unshare --mount bash -euc 'for each in dev proc sys; do mount --rbind "/$each" "$1/$each"; done
        mount -t tmpfs tmpfs "$1/dev/shm" && shift && exec chroot "$@"' in_root "$root" "$root" \
        env -u HPCGNN_PYTHON -u PYTHONPATH -u VIRTUAL_ENV -u PIP_FIND_LINKS HOME=/root TMPDIR=/tmp bash /hpcgnn/env/versions.sh newest "$@"
}
torch=$(grep '^torch==' "$project/env/constraints.txt")
[ -z "${HPCGNN_TORCH:-}" ] || torch="torch==$HPCGNN_TORCH"
copy_to "$copy"
case $which in
    oldest)
        export HPCGNN_PYTHON=${HPCGNN_PYTHON:-python3.11}
        # What the tests need besides fits itself to these, but for pyarrow, which does not tell pip which numpy it needs.
        floors=$(sed -n -e '/^install_requires/,/^$/s/^ *\([A-Za-z0-9_-]*\)>=\(.*\)$/\1==\2/p' -e 's/^ *pyarrow>=/pyarrow==/p' "$project/setup.cfg" |
            grep -v '^torch==')
        printf '%s\n' "$floors" "$torch" > "$copy/env/constraints.txt"
        ;;
    newest)
        # torch for another Python may bring along a GPU's libraries.
        free=$(df --output=avail --block-size=1G "$copy" | tail -1)
        [ "$free" -ge 15 ] || { echo "newest: expected 15 GiB free in ${TMPDIR:-/tmp}, got $free: nothing is tried"; exit; }
        root=$copy/debian
        if [ -z "${HPCGNN_PYTHON:-}" ] && ! python3.14 -c '' 2> /dev/null && [ "$(id -u)" = 0 ] && command -v debootstrap > /dev/null && make_root; then
            in_root "$@"
            exit
        fi
        # A name that a version manager only reserves is no Python; its folder has some that no name leads to.
        for version in 3.14 3.13 3.12; do
            for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
                ! "$python" -c '' 2> /dev/null || export HPCGNN_PYTHON="${HPCGNN_PYTHON:-$python}"
            done
        done
        [ -n "${HPCGNN_PYTHON:-}" ] || { echo "newest: no Python newer than 3.11 on this machine: nothing to do"; exit; }
        # KaMinPar has no wheel for Python 3.14, and building it fetches more.
        ! "$HPCGNN_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 14))' || sed -i 's/kaminpar,//' "$copy/env/test.sh"
        echo "$torch" > "$copy/env/constraints.txt"
        ;;
esac
[ $# -gt 0 ] || set -- --part core --part kernels --part tools --part "ranks, first rooms" --part "ranks, other rooms"
echo "$which: $("$HPCGNN_PYTHON" --version), $torch${floors:+, ${floors//$'\n'/, }}"
bash "$copy/env/test.sh" "$@"
