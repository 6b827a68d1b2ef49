"""Every script in jobs/ answers --help, on any machine and without an environment."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path for pattern in ("*.sh", "*.sbatch", "*/run.sh", "bench/*/*.sh") for path in (ROOT / "jobs").glob(pattern)
)


def call(*words, cwd):
    return subprocess.run(words, cwd=cwd, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not SCRIPTS, reason="there are no job scripts beside the tests")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(script, option, tmp_path):
    done = call("bash", str(script), option, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    usage = done.stdout
    assert "Usage: " in usage and "Example" in usage and f"jobs/{script.relative_to(ROOT / 'jobs')}" in usage
    assert "script=" not in usage and not re.search("^#|#SBATCH", usage, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []
