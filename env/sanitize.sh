#!/usr/bin/env bash
# The kernels' own tests under AddressSanitizer and UndefinedBehaviorSanitizer, on a copy of the tree: no access outside of an
# array, no overflow, no misaligned load goes unseen. Skips, and says so, where the compiler has no sanitizers.
#
#   bash env/sanitize.sh [pytest options]
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment plot,import,test
cd "$project"
runtime=$(${CC:-cc} -print-file-name=libasan.so 2> /dev/null || true)
if [ ! -e "$runtime" ]; then
    echo "sanitize: SKIPPED: the compiler has no AddressSanitizer" >&2
    exit 0
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r hpcgnn partition_tools tests setup.py setup.cfg pyproject.toml README.md "$copy"
rm -f "$copy"/hpcgnn/kernels/_native*.so
cd "$copy"
# -O1 after setup.py's -O3 would be lost, so the vector paths are compiled as they ship; libraries that are not ours are not checked.
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" LDFLAGS="-fsanitize=address,undefined" \
    python setup.py --quiet build_ext --inplace > build.log 2>&1 || { cat build.log >&2; exit 1; }
ls hpcgnn/kernels/_native*.so > /dev/null
export OMP_NUM_THREADS=2 HPCGNN_KERNELS=native PYTHONPATH=$copy
LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    timeout 600 python -m pytest -q -p no:cacheprovider tests/kernels "$@"
