"""A release: the sdist is complete, wheels for two processors are made of it, and one trains in a fresh environment."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hpcgnn
from hpcgnn.kernels.sources import fingerprint

from .environments import BORROW, fresh_environment, quick_compiler

ROOT = Path(__file__).parents[2]
NAME = f"hpcgnn-{hpcgnn.__version__}"
CROSS = "aarch64-linux-gnu-gcc"
ASK = """#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *library = dlopen(words[count - 1], RTLD_NOW);
    const char *(*sources)(void) = library ? (const char *(*)(void))dlsym(library, "hg_sources") : 0;
    if (!sources) return fprintf(stderr, "%s\\n", dlerror()), 1;
    return puts(sources()) < 0;
}
"""
IN_A_FRESH_ENVIRONMENT = f"""
set -e
cd "$1"
pip install --quiet --no-index --no-deps "$2"
{BORROW}
hpcgnn --version
python -c "import hpcgnn, partition_tools; print(hpcgnn.__file__, partition_tools.__file__)"
python -m partition_tools generate planted -o graph.h5 --nodes 300 --degree 6 --features 8 --classes 3 --seed 1
python -m partition_tools partition add graph.h5 --ranks 2
"$MPIEXEC" -n 2 hpcgnn train --graph graph.h5 --model sage --layers 2 --hidden 8 --epochs 5 --run-dir run
"""

pytestmark = [
    pytest.mark.skipif(not (ROOT / "setup.cfg").exists(), reason="there are no sources beside the tests"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for all; its files, hundreds of MB, go at the end."""
    folder = tmp_path_factory.mktemp("release")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def release(folder):
    """The folder that env/wheels.sh makes: sources and wheels."""
    for tool in ("auditwheel", "abi3audit"):
        pytest.importorskip(tool, reason=f"{tool} is not installed: it comes with the extra `test`")
    if platform.machine() != "x86_64":
        pytest.skip("env/wheels.sh runs on x86-64, and cross-compiles for aarch64")
    variables = os.environ | {
        "CC": quick_compiler(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    if shutil.which(CROSS):
        variables["CROSS"] = quick_compiler(folder, CROSS)
    command = ["bash", ROOT / "env" / "wheels.sh", folder / "files"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "files"


def test_the_sdist_has_what_a_build_needs(release):
    with tarfile.open(release / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "hpcgnn").rglob("native/*") if path.is_file()}
    sources |= {str(path.relative_to(ROOT)) for path in (ROOT / "partition_tools").rglob("*.py")}
    sources |= {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    sources |= {"docs/quickstart.md", "jobs/train.sbatch", "env/constraints.txt"}
    assert len(sources) > 50 and not sorted(sources - names)


@pytest.fixture(scope="module")
def wheel(release):
    """The path of the wheel for this machine."""
    (made,) = release.glob("*x86_64.whl")
    return made


def test_the_wheel_has_the_kernels_and_the_programs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        assert "hpcgnn = hpcgnn.__main__:main" in archive.read(points).decode()
    assert wheel.name.startswith(f"{NAME}-cp311-abi3-manylinux") and "hpcgnn/kernels/_native.abi3.so" in names
    assert {"hpcgnn/py.typed", "partition_tools/py.typed"} <= set(names)
    assert not [name for name in names if "libgomp" in name], "torch's OpenMP library must stay the only one"
    assert not [name for name in names if name.startswith(("tests", "docs", "jobs"))]


def test_the_wheel_for_aarch64_has_kernels_that_run_there(release, folder):
    """By an emulator: the library is loaded, and knows its sources and its vector path."""
    if missing := [name for name in (CROSS, "qemu-aarch64") if shutil.which(name) is None]:
        pytest.skip(f"there is no {missing[0]} here")
    (wheel,) = release.glob(f"{NAME}-cp311-abi3-manylinux*aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("hpcgnn/kernels/_native.abi3.so", folder)
    (folder / "ask.c").write_text(ASK)
    subprocess.run([CROSS, folder / "ask.c", "-o", folder / "ask", "-ldl"], check=True)
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", folder / "ask", library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{fingerprint()}\n", done.stderr


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
