#!/usr/bin/env bash
# Everything that an installation needs, in one folder, for machines without internet: `--help` says how.
# shellcheck disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat << 'HELP'
usage: bash env/wheelhouse.sh FOLDER [--extras NAME,NAME…|none]

On a machine with internet (a login node): downloads every package that hpcgnn needs as a wheel, in the versions of
env/constraints.txt, builds hpcgnn's own wheel, and puts them into FOLDER, which must not exist.

On a machine without (a compute node), with the same version of Python and the same kind of processor:
  python3 -m venv hpcgnn-environment && . hpcgnn-environment/bin/activate
  pip install --no-index --find-links FOLDER 'hpcgnn[mpi,plot]'
  hpcgnn doctor

  --extras NAME,…   extras of setup.cfg (mpi,plot); none, or plot, where the site's MPI is to be used

HPCGNN_PYTHON chooses the Python; pip's own configuration the index, and with it the build of torch (one for CPUs is enough).
FOLDER/SHA256SUMS lets a copy be checked: cd FOLDER && sha256sum --check SHA256SUMS

exit codes: 0 done; 1 a package cannot be had (FOLDER is not made); 2 a wrong argument
HELP
}

refuse() { echo "wheelhouse: error: $* (bash env/wheelhouse.sh --help)" >&2; exit 2; }

folder="" extras=mpi,plot
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --extras) [ $# -gt 1 ] || refuse "--extras needs a value"; extras=$2; shift 2 ;;
        -*) refuse "expected a folder and --extras, got '$1'" ;;
        *) [ -z "$folder" ] || refuse "expected one folder, got '$folder' and '$1'"; folder=$1; shift ;;
    esac
done
[ -n "$folder" ] || refuse "expected the folder to make"
[ ! -e "$folder" ] || refuse "$folder exists; name a new folder"
[ "$extras" != none ] || extras=""
for name in ${extras//,/ }; do
    grep -q "^$name *=" "$project/setup.cfg" || refuse "setup.cfg has no extra '$name'"
done
python=$(choose_python)
mkdir -p "$(dirname "$folder")"
# Complete under its name, or not at all.
made=$(mktemp -d "$folder.XXXXXX.part")
trap 'rm -rf "$made"' EXIT
# A copy without what earlier builds have left: it would go into the wheel.
mkdir "$made/source" "$made/wheels"
(cd "$project" && tar -c --exclude __pycache__ --exclude '*.so' --exclude '*.egg-info' setup.cfg setup.py pyproject.toml README.md LICENSE \
    hpcgnn partition_tools) | tar -x -C "$made/source"
"$python" -m venv "$made/environment" || fail "cannot make a virtual environment; install Python's venv module"
"$made/environment/bin/pip" wheel --quiet --disable-pip-version-check --constraint "$project/env/constraints.txt" \
    --wheel-dir "$made/wheels" "$made/source${extras:+[$extras]}" || fail "a package cannot be had; the lines above say why"
(cd "$made/wheels" && sha256sum -- *.whl > SHA256SUMS)
chmod 755 "$made/wheels"
mv "$made/wheels" "$folder"
echo "wheelhouse: $(wc -l < "$folder/SHA256SUMS") wheels, $(du -sh "$folder" | cut -f1)B; where there is no internet:"
printf "  pip install --no-index --find-links %q 'hpcgnn%s'\n" "$(realpath "$folder")" "${extras:+[$extras]}"
