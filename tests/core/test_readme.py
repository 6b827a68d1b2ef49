"""The README as a new user follows it: what its commands need is said before they need it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


@pytest.fixture(scope="module")
def commands():
    """The lines of the README's shell examples, in order."""
    if not README.exists():
        pytest.skip("there is no README beside the tests")
    return [
        line for block in re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL) for line in block.splitlines()
    ]


def fresh_shell(command):
    """Run it as a shell that knows nothing of us does."""
    environment = {"HOME": os.environ.get("HOME", "/"), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90
    )


def test_activation_comes_before_the_first_command_that_needs_it(commands):
    """After the quick start the next commands failed in a fresh shell: `hpcgnn: command not found`."""
    activation = commands.index(". .venv/bin/activate")
    needing = [number for number, line in enumerate(commands) if re.match(r"(hpcgnn|mpiexec|srun|python) ", line)]
    assert needing and activation < min(needing)


def test_activation_is_enough(commands):
    if not (ROOT / ".venv" / "bin" / "activate").exists():
        pytest.skip("this checkout has no .venv: the package is installed elsewhere")
    activate = next(line for line in commands if "activate" in line)
    done = fresh_shell(f"{activate} && hpcgnn --version && python -m partition_tools --help")
    assert done.returncode == 0 and done.stdout.startswith("hpcgnn "), done.stderr


def test_the_scripts_end_with_it():
    """In words that can be pasted into any directory's shell."""
    done = fresh_shell(". env/setup.sh && how_to_activate")
    line = done.stdout.strip()
    assert done.returncode == 0 and line.endswith(f". {ROOT}/.venv/bin/activate"), done.stderr
    for script in ("quickstart.sh", "test.sh"):
        assert (ROOT / "env" / script).read_text().rstrip().endswith("\nhow_to_activate")
