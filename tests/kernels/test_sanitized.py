"""The kernels' own tests once more, with every access to memory and every doubtful operation checked as it happens."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sanitized

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
# Loading and the choice of a path are not what is tested; widths and edges by the thousand only repeat.
TESTS = ["test_attention.py", "test_between.py", "test_gather.py", "test_multiply.py", "test_loss.py", "test_narrow.py"]
TESTS += ["test_pack_and_check.py", "test_projection.py", "test_random.py", "test_add_rows.py", "test_row_rules.py"]
TESTS += ["test_tables.py", "test_matching.py", "test_chain.py"]
TOO_LONG = "not 1900 and not 14500 and not many_hubs"

# A kernel that is given a column that is not there, past the checks of the public function.
WRONG = """
import sys; sys.path.insert(0, {here!r})
import sanitized, torch; sanitized.serve()
from hpcgnn.kernels import gather
torch.set_num_threads(1)
x, y = torch.zeros(4, 16), torch.zeros(1, 16)
print("loaded", flush=True)
column = torch.tensor([{column}], dtype=torch.int32)
gather(y, x, torch.tensor([0, 1]), column)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if sanitized.runtime() is None:
        pytest.skip("gcc with AddressSanitizer is not here")
    return sanitized.build(tmp_path_factory.mktemp("sanitized"))


@pytest.fixture(params=["narrow", "avx512"])
def path(request):
    """A vector path: the widest of the baseline and AVX2, and AVX-512."""
    if request.param == "avx512" and "avx512" not in sanitized.paths():
        pytest.skip("the processor has no AVX-512")
    return sanitized.paths()[0] if request.param == "narrow" else request.param


@pytest.fixture
def environment(built, path):
    return os.environ | {
        "LD_PRELOAD": sanitized.runtime(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's are many
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "HPCGNN_KERNELS": "native",
        "HPCGNN_VECTOR": path,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
        sanitized.LIBRARY: str(built),
    }


def run(environment, *arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1000, cwd=HERE.parents[1])


def test_what_the_sanitizers_are_for(environment):
    """A row beyond the end is seen, and the error names this overflow."""
    good, bad = (run(environment, "-c", WRONG.format(here=str(HERE), column=column)) for column in (3, 5))
    assert good.returncode == 0 and "done" in good.stdout, good.stderr
    assert bad.returncode != 0 and "loaded" in bad.stdout and "done" not in bad.stdout
    assert "AddressSanitizer: heap-buffer-overflow" in bad.stderr, bad.stderr


def test_the_kernels_tests_under_sanitizers(environment, path):
    tests = [HERE / name for name in TESTS]
    wanted = f"{path} and {TOO_LONG} and not (combination and {path}-2-)"
    done = run(environment, "-m", "pytest", "-vsx", "-p", "sanitized", "-k", wanted, *tests)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[:6000]
    passed = [line for line in done.stdout.splitlines() if line.endswith("PASSED")]
    assert len(passed) > 100, done.stdout
    assert all(any(f"{name}::" in line for line in passed) for name in TESTS), "the selection has left out a whole file"
