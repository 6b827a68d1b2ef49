"""One real SLURM for all tests of the job scripts, of their own: others on this machine are left alone."""

import os
import shlex
import sys

import graphs
import pytest
from core import forked
from faults.harness import proxy
from slurm_helpers import LOCAL, ROOT, Cluster, call

# A `python` that forks hpcgnn from a process with torch, and is the real one otherwise.
PYTHON = """#!/bin/sh
if [ "$1 $2 $3" = "-P -m hpcgnn" ]; then shift; set -- {forking} "$@"; else set -- {real} "$@"; fi
exec "$@"
"""


@pytest.fixture(scope="session")
def forking(tmp_path_factory):
    """The PATH with that `python`: for commands of the login node, not for jobs."""
    python = tmp_path_factory.mktemp("bin") / "python"
    words = (shlex.join(map(str, each)) for each in (proxy(forked.server()), [sys.executable]))
    python.write_text(PYTHON.format(**dict(zip(("forking", "real"), words, strict=True))))
    python.chmod(0o755)
    return os.pathsep.join([str(python.parent), os.path.dirname(sys.executable), os.environ["PATH"]])


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
