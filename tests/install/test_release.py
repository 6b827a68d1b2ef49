"""A release: the sdist is complete, a wheel is made of it alone, and the wheel trains in a fresh environment."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hpcgnn

from .environments import BORROW, fresh_environment, quick_compiler

ROOT = Path(__file__).parents[2]
NAME = f"hpcgnn-{hpcgnn.__version__}"
NOT_COPIED = (".git", ".venv", "build", "dist", "runs", "tests", "*.egg-info", "__pycache__", "*.so", "*.tar.gz")
IN_A_FRESH_ENVIRONMENT = f"""
set -e
cd "$1"
pip install --quiet --no-index --no-deps "$2"
{BORROW}
hpcgnn --version
python -c "import hpcgnn, partition_tools; print(hpcgnn.__file__, partition_tools.__file__)"
python -m partition_tools generate planted -o graph.h5 --nodes 300 --degree 6 --features 8 --classes 3 --seed 1
python -m partition_tools partition graph.h5 --ranks 2
"$MPIEXEC" -n 2 hpcgnn train --graph graph.h5 --model sage --layers 2 --hidden 8 --epochs 5 --run-dir run
"""

pytestmark = pytest.mark.skipif(not (ROOT / "setup.cfg").exists(), reason="there are no sources beside the tests")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for all; what is in it, hundreds of MB, goes at the end."""
    folder = tmp_path_factory.mktemp("release")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def sdist(folder):
    """The path of the source distribution, made in a copy of the sources."""
    shutil.copytree(ROOT, folder / "sources", ignore=shutil.ignore_patterns(*NOT_COPIED))
    build = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('..')"]
    done = subprocess.run(build, cwd=folder / "sources", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "sources")  # nothing but the sdist is left to build from
    return folder / f"{NAME}.tar.gz"


def test_the_sdist_has_what_a_build_needs(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "hpcgnn").rglob("native/*") if path.is_file()}
    sources |= {str(path.relative_to(ROOT)) for path in (ROOT / "partition_tools").rglob("*.py")}
    sources |= {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    sources |= {"docs/quickstart.md", "jobs/train.sbatch", "env/constraints.txt"}
    assert len(sources) > 50 and not sorted(sources - names)


@pytest.fixture(scope="module")
def wheel(sdist, folder):
    """The path of the wheel that pip makes of the sdist."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    environment = os.environ | {"CC": quick_compiler(folder)}
    done = subprocess.run(
        [*command, "--wheel-dir", folder / "wheels", sdist],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "wheels").glob("*.whl")
    return made


def test_the_wheel_has_the_kernels_and_the_programs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        assert "hpcgnn = hpcgnn.__main__:main" in archive.read(points).decode()
    assert wheel.name.startswith(f"{NAME}-cp") and any("kernels/_native." in name for name in names)
    assert not [name for name in names if name.startswith(("tests", "docs", "jobs"))]


def test_a_fresh_environment_trains_with_it(wheel, folder):
    place, beside = folder / "environment", Path(sys.prefix)
    environment = fresh_environment(place) | {"MPIEXEC": shutil.which("mpiexec") or "mpiexec"}
    if (library := beside / "lib" / "libmpi.so.12").exists():  # that of the wheel of MPICH, whose mpiexec this is
        environment |= {"MPI4PY_LIBMPI": str(library), "MPIEXEC": str(beside / "bin" / "mpiexec")}
    command = ["bash", "-c", IN_A_FRESH_ENVIRONMENT, "bash", folder, wheel]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"hpcgnn {hpcgnn.__version__}\n{place}" in done.stdout and done.stdout.count(f"{place}/lib") == 2
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["versions"]["hpcgnn"] == hpcgnn.__version__ and summary["kernels"]["native"] is True
