"""The kernels compiled for aarch64 (NEON), on this machine's processor by emulation: their own tests, which compare
with oracles. Emulation shows neither the speed of a real processor nor its weaker order of memory.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import emulated
import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TESTS = [f"test_{name}.py" for name in "attention between gather loss narrow pack_and_check random tables".split()]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library's file; the program that calls it is in the same folder."""
    if platform.machine() == "aarch64":
        pytest.skip("the processor is of this architecture: the other tests run there as they are")
    if reason := emulated.missing():
        pytest.skip(reason)
    return emulated.build(tmp_path_factory.mktemp("aarch64"))


def test_the_kernels_tests(built):
    environment = os.environ | {
        "HPCGNN_KERNELS": "native",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
        emulated.FOLDER: str(built.parent),
    }
    options = ["-vx", "-p", "emulated", "-k", "baseline"]
    command = [sys.executable, "-m", "pytest", *options, *(HERE / name for name in TESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    passed = [line for line in done.stdout.splitlines() if " PASSED" in line]
    assert len(passed) > 140 and all(any(name in line for line in passed) for name in TESTS), done.stdout
    calls = int(done.stdout.partition(f" calls under {emulated.EMULATOR}")[0].rpartition("\n")[2])
    assert calls > 1500, "these tests ran on something else"
