"""An installation from a wheelhouse, in a network namespace without internet: `doctor`, and a training on two ranks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .environments import BORROW, fresh_environment, quick_compiler

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Taken from the wheelhouse; the rest, torch above all, from the environment of the tests, which saves most of a minute.
INSTALLED = ["hpcgnn", "mpi4py", "mpich", "tabulate", "tomli_w"]
IN_THE_NAMESPACE = f"""
ip link set lo up 2> /dev/null
set -e
cd "$1"
pip install --quiet --no-index --find-links wheels --no-deps "${{@:2}}"
{BORROW}
hpcgnn doctor
python -m partition_tools generate planted -o graph.h5 --nodes 300 --degree 6 --features 8 --classes 3 --seed 1
python -m partition_tools partition add graph.h5 --ranks 2
mpiexec -n 2 hpcgnn train --graph graph.h5 --model gcn --layers 2 --hidden 8 --epochs 2 --run-dir run
"""


def wheelhouse(*arguments, **variables):
    command = ["bash", ROOT / "env" / "wheelhouse.sh", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "expected the folder to make"),
        ([ROOT], "exists; name a new folder"),
        (["new", "--extras", "plots"], "no extra 'plots'"),
        (["new", "--fast"], "got '--fast'"),
    ],
)
def test_a_wrong_argument_is_refused(arguments, said):
    done = wheelhouse(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_nothing_is_left_of_a_wheelhouse_that_fails(tmp_path):
    """An index that does not answer, and nothing else to take packages from."""
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
    done = wheelhouse(tmp_path / "wheels", PIP_CONFIG_FILE=os.devnull, **nowhere)
    assert done.returncode == 1 and "a package cannot be had" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_installation_without_internet(tmp_path):
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here: that takes root, or the right to user namespaces")
    made = wheelhouse(tmp_path / "wheels", "--extras", "mpi", HPCGNN_PYTHON=sys.executable, CC=quick_compiler(tmp_path))
    assert made.returncode == 0, made.stderr
    wheels = [path.name for path in (tmp_path / "wheels").glob("*.whl")]
    assert sum(name.startswith("torch-") for name in wheels) == 1
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=tmp_path / "wheels", check=True)
    place = tmp_path / "environment"
    environment = fresh_environment(place)
    command = ["unshare", "-n", "bash", "-c", IN_THE_NAMESPACE, "bash", tmp_path, *INSTALLED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    doctor = "".join(done.stdout.split())  # a long path is broken into lines
    assert f"{place}/bin/python" in doctor and "kernelsnative" in doctor
    assert (tmp_path / "run" / "summary.json").exists()
    for folder in (place, tmp_path / "wheels"):  # hundreds of MB, which pytest would keep
        shutil.rmtree(folder)
