"""Shared parts of the tests of installations: a shell that knows nothing of this one, and a compiler that is in a
hurry.
"""

import os
import subprocess
import sys
import sysconfig

# Only after an installation, so that pip does not take what is borrowed for installed.
BORROW = """echo "$BORROWED" > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth\""""


def clean():
    """This shell's variables without the variables of launchers, and without any by which pip would look elsewhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PMI", "OMPI", "SLURM", "PYTHONPATH"))}
    return kept | {"PIP_CONFIG_FILE": os.devnull, "OMP_NUM_THREADS": "1"}


def fresh_environment(place):
    """Make an environment with nothing in it; the variables of a shell in which it is active. `BORROW` in this shell
    lends it the packages of the tests' environment, torch above all.
    """
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    return clean() | {
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(place),
        "BORROWED": sysconfig.get_path("purelib"),
    }


def quick_compiler(folder, program="cc"):
    """A C compiler for CC: the kernels take a minute to compile as they are meant to be."""
    compiler = folder / f"quick-{program}"
    compiler.write_text(f'#!/bin/sh\nexec {program} "$@" -O0\n')
    compiler.chmod(0o755)
    return str(compiler)
