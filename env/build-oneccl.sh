#!/usr/bin/env bash
# Builds the library by which `--comm oneccl` speaks to Intel's oneCCL, on the machine that is to use it (some seconds, 30 MB to fetch).
#
#   bash env/build-oneccl.sh [FOLDER]      (default: lib/hpcgnn-oneccl in the active environment, where hpcgnn looks for it)
#
# pip fetches two packages of Intel's: oneccl-devel (headers, and an archive for CPUs, without SYCL) and tcmlib (for libhwloc). Both are
# under the Intel Simplified Software License, which is put beside the library. What is built contains oneCCL: hpcgnn neither ships nor
# keeps it, and you pass it on under Intel's terms only. The environment's packages stay as they are.
#
# HPCGNN_ONECCL_WHEELS   a folder with the two wheels, for a machine without internet (pip download --no-deps, see below)
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=2022.1.2
hwloc=tcmlib
fail() { echo "build-oneccl: $*" >&2; exit 1; }

python=$project/.venv/bin/python
[ -n "${VIRTUAL_ENV:-}" ] && python=$VIRTUAL_ENV/bin/python
[ -x "$python" ] || python=$(command -v python3) || fail "no python3 found; activate the environment that has hpcgnn"
[ "$(uname -m)" = x86_64 ] || fail "Intel's packages are for x86_64, this machine is $(uname -m)"
command -v g++ >/dev/null && command -v gcc >/dev/null || fail "no C++ compiler found; install gcc and g++"
folder=${1:-$("$python" -c 'import sys; print(sys.prefix)')/lib/hpcgnn-oneccl}
mkdir -p "$folder" || fail "cannot make the folder $folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "$folder/.building-XXXXXX")
trap 'rm -rf "$work"' EXIT

if [ -n "${HPCGNN_ONECCL_WHEELS:-}" ]; then
    from=(--no-index --find-links "$HPCGNN_ONECCL_WHEELS")
else
    from=()
fi
"$python" -m pip download --quiet --disable-pip-version-check --no-deps ${from[@]+"${from[@]}"} --dest "$work/wheels" \
    "oneccl-devel==$version" "$hwloc" || fail "cannot fetch oneccl-devel==$version and $hwloc; the lines above say why"

# No more of them than is needed: the other archive is of 177 MB.
"$python" - "$work" <<'EOF' || fail "a package does not hold what is expected of it"
import pathlib, sys, zipfile

work, found = pathlib.Path(sys.argv[1]), set()
for wheel in (work / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            inside = name.partition(".data/data/")[2]
            if inside.startswith("include/") or inside in ("lib/ccl/cpu/lib/libccl.a", "lib/libhwloc.so.15"):
                place = work / inside
            elif name.endswith(".dist-info/LICENSE.txt"):
                place = work / f"LICENSE.{wheel.name.split('-')[0]}.txt"
            else:
                continue
            found.add(place.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(packed.read(name))
missing = {"ccl.hpp", "libccl.a", "libhwloc.so.15"} - found
if missing:
    sys.exit(f"build-oneccl: not in the packages: {', '.join(sorted(missing))}")
EOF

native=$project/hpcgnn/extras/oneccl/native
sources=$(cat "$native"/oneccl.cpp "$native"/oneccl_stubs.c | sha256sum | cut -c1-16)
gcc -O2 -fPIC -c "$native/oneccl_stubs.c" -o "$work/stubs.o"
# Names of the archive stay inside: an MPI or a torch in the same process may have the same.
g++ -O2 -std=c++17 -fPIC -shared -DHPO_SOURCES="\"$sources\"" -I"$work/include" "$native/oneccl.cpp" "$work/stubs.o" \
    -o "$work/libhpcgnn_oneccl.so" -Wl,-Bsymbolic -Wl,--exclude-libs,ALL "$work/lib/ccl/cpu/lib/libccl.a" "$work/lib/libhwloc.so.15" \
    -ldl -lpthread -Wl,-rpath,'$ORIGIN' || fail "g++ cannot build the library; the lines above say why"
mv "$work"/LICENSE.*.txt "$work/lib/libhwloc.so.15" "$folder/"
mv "$work/libhpcgnn_oneccl.so" "$folder/"
echo "build-oneccl: built $folder/libhpcgnn_oneccl.so with oneCCL $version (Intel Simplified Software License, $folder/LICENSE.oneccl_devel.txt)"
[ -z "${1:-}" ] || echo "build-oneccl: to use it: export HPCGNN_ONECCL=$folder/libhpcgnn_oneccl.so"
