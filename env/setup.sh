# shellcheck shell=bash
# Sourced by quickstart.sh and test.sh: makes (or brings up to date) the virtual environment .venv beside this folder.
#
#   setup_environment EXTRA[,EXTRA…]     install the project with these extras of setup.cfg, then activate .venv
#
# HPCGNN_PYTHON   the Python to use (default: python3.11, else python3; at least 3.11 is needed)
# HPCGNN_VECTOR_PATHS   all (default); native: the widest of this processor, which compiles in a third of the time; runnable: all of
#                 this processor
# HPCGNN_MPI      wheel (default): an MPI from a wheel, no system package needed;
#                 site: the MPI that this machine has, e.g. on a cluster (env/README.md says how)
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { echo "setup: $*" >&2; exit 1; }

# What a shell needs before `hpcgnn` is a command in it: said at the end of both scripts, for they activate their own shell alone.
how_to_activate() {
    printf 'to use hpcgnn in this shell, activate its environment first: . %q\n' "$project/.venv/bin/activate"
}

# The Python to use, as a command.
choose_python() {
    local python
    python=${HPCGNN_PYTHON:-$(command -v python3.11 || command -v python3 || true)}
    [ -n "$python" ] || fail "no python3 found; install Python 3.11 or later, or set HPCGNN_PYTHON"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old; Python 3.11 or later is needed: set HPCGNN_PYTHON"
    echo "$python"
}

# The packages that build the project, and those that setup.cfg names for it and for some extras (joined by commas), one in a line.
requirements() {
    "$project/.venv/bin/python" - "$project" "$1" <<'END'
import configparser, pathlib, sys, tomllib
folder, setup = pathlib.Path(sys.argv[1]), configparser.ConfigParser()
setup.read(folder / "setup.cfg", encoding="utf-8")
extras = [setup["options.extras_require"][name] for name in sys.argv[2].split(",")]
build = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
print("\n".join([*build, setup["options"]["install_requires"], *extras]))
END
}

# Begin to compile the kernels by a Python that has setuptools. pip finds the library among those of before (setup.py), and tells
# what is wrong if it does not.
begin_to_compile() {
    (cd "$project" && exec "$1" setup.py -q build_ext --inplace) > /dev/null 2>&1 &
    compiling=$!
}

setup_environment() {
    local extras=$1 python stamp paths=${HPCGNN_VECTOR_PATHS:-all} environment=$project/.venv compiling=
    python=$(choose_python)
    command -v cc >/dev/null || command -v gcc >/dev/null ||
        echo "setup: no C compiler found: the slow pure-torch kernels will serve; install gcc for the fast ones" >&2
    [ "${HPCGNN_MPI:-wheel}" = site ] || extras="mpi,$extras"
    # What is installed follows from these files; they are hashed, so that a second run takes no time. Lines with another hash
    # are of another state of the project, whose kernel library is not ours.
    stamp=$(cat "$project"/{setup.cfg,setup.py,pyproject.toml,env/constraints.txt} "$project"/hpcgnn/kernels/native/* | sha256sum | cut -c1-16)
    stamp=$stamp-${HPCGNN_MPI:-wheel}
    # A library of more vector paths serves whoever needs fewer.
    local serves=(-e "$stamp $extras $paths" -e "$stamp $extras all")
    [ "$paths" != native ] || serves+=(-e "$stamp $extras runnable")
    if ! grep -qsxF "${serves[@]}" "$environment/installed"; then
        echo "setup: installing hpcgnn[$extras] into .venv, and compiling its kernels ($paths vector paths): one to three minutes the first time" >&2
        # The kernels compile beside all else, which takes as long.
        ! "$python" -c "import setuptools" 2>/dev/null || begin_to_compile "$python"
        if [ ! -x "$environment/bin/pip" ]; then
            "$python" -m venv "$environment" || fail "cannot make a virtual environment; install Python's venv module"
        fi
        grep -qs "^$stamp " "$environment/installed" || : > "$environment/installed"
        # pip would compile ten thousand files of Python, one after another, for longer than all else takes: what is used is compiled
        # below, from the folder of the project.
        local pip=("$environment/bin/pip" install --quiet --disable-pip-version-check --no-compile --constraint "$project/env/constraints.txt")
        requirements "$extras" > "$environment/requirements.txt"
        # The pip that comes with Python 3.11 needs twice the time of a newer one to choose versions; with it installation goes on
        # if there is no other.
        "${pip[@]}" pip 2>/dev/null || true
        if [ -z "$compiling" ] && "${pip[@]}" setuptools; then
            begin_to_compile "$environment/bin/python"
        fi
        "${pip[@]}" --requirement "$environment/requirements.txt" ||
            { kill $compiling 2>/dev/null || true; fail "installation failed; the lines above say why"; }
        (cd "$project" && exec env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c "import hpcgnn.app.train, partition_tools.cli") &
        local loading=$!
        wait $compiling || true
        "${pip[@]}" --no-deps --no-build-isolation --editable "$project" || fail "hpcgnn itself could not be installed; the lines above say why"
        wait $loading || fail "what was installed cannot be loaded; the lines above say why"
        # A wheel in the environment would be loaded before the site's library, and its mpiexec found before the site's.
        [ "${HPCGNN_MPI:-wheel}" != site ] || "$environment/bin/pip" uninstall --quiet --yes mpich 2>/dev/null || true
        echo "$stamp $extras $paths" >> "$environment/installed"
    fi
    # shellcheck disable=SC1091
    . "$environment/bin/activate"
}
