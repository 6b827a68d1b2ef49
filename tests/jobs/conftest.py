"""One real SLURM for all tests of the job scripts, of their own: others on this machine are left alone."""

import os

import graphs
import pytest
from slurm_helpers import LOCAL, ROOT, Cluster, call


@pytest.fixture(scope="session")
def slurm():
    """{variable: value} of who talks to a local SLURM. Skips, saying why, where none can be started."""
    here = {"HPCGNN_SLURM_DIR": os.environ.get("HPCGNN_TEST_SLURM", f"/tmp/hpcgnn-slurm-tests-{os.getpid()}")}
    done = call(["bash", LOCAL, "up"], limit=300, **here)
    if done.returncode:
        pytest.skip(f"NO SLURM HERE, the job scripts are not tested: {done.stderr.strip().splitlines()[-1]}")
    try:
        lines = call(["bash", LOCAL, "env"], **here).stdout.strip().splitlines()
        yield here | dict(line.removeprefix("export ").split("=", 1) for line in lines)
    finally:
        call(["bash", LOCAL, "down", "--force"], **here)


@pytest.fixture(scope="module")
def cluster(slurm, tmp_path_factory):
    """A login node with the project's jobs/ and env/ in a directory of its own."""
    home = tmp_path_factory.mktemp("login")
    for name in ("jobs", "env"):
        (home / name).symlink_to(ROOT / name)
    cluster = Cluster(slurm, home)
    yield cluster
    cluster.run("scancel --user=$(id -un)", check=False)
    cluster.wait()


@pytest.fixture(scope="session")
def graph(tmp_path_factory):
    """A graph with maps for 1, 2 and 4 ranks."""
    path = tmp_path_factory.mktemp("graph") / "g.h5"
    return graphs.planted(path, [1, 2, 4], clusters=64, nodes=600, degree=8, features=12, classes=4, seed=3)
