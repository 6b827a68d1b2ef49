"""A question of threads.py asked again in a process with a small C library before the OpenMP runtime."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@contextlib.contextmanager
def compiled(source: str) -> Iterator[Path]:
    """The library of a file of questions/, compiled. Raises SystemExit where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("threads.py: error: expected a C compiler, cc or gcc, found none; install one")
    with tempfile.TemporaryDirectory(prefix="threads-") as folder:
        library = Path(folder) / "preloaded.so"
        flags = ["-O2", "-shared", "-fPIC", "-o", library]
        subprocess.run([compiler, *flags, HERE / "questions" / source, "-ldl"], check=True)
        yield library


def asked_inside(question: str, library: Path, threads: int, *options: Any) -> Any:
    """What a process with so many threads prints last, as JSON. SystemExit, with its last words, if it failed."""
    command = [sys.executable, str(HERE / "threads.py"), question, "--inside", str(library)]
    # The affinity mask counts for the threads of a rank; here there may be more threads than cores.
    environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": str(threads), "OMP_DYNAMIC": "false"}
    command += ["--threads", str(threads), *map(str, options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"threads.py: error: {question}, {threads} threads: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
