"""Runs tests in a copy of the checkout without the packages of `hpcgnn/extras` and their tests: the core needs none.

python tests/without_extras.py [pytest options]
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = "hpcgnn/extras/", "tests/extras/"


def copied(target):
    """Copy the kernel library, and the tracked files except the extras."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    native = [str(path.relative_to(ROOT)) for path in (ROOT / "hpcgnn" / "kernels").glob("_native*.so")]
    for name in [*filter(None, listed.split("\0")), *native]:
        if not name.startswith(WITHOUT) and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def main():
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]
        found = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": folder})
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
