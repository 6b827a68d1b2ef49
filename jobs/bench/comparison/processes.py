"""Measurements are fresh processes with a limit on their time, and what a failed one said last is its reason."""

import os
import signal
import subprocess
import time

_LAUNCHER_PREFIXES = ("PMI", "HYDRA", "MPI", "OMPI", "SLURM")
_GONE_SECONDS = 10.0
_NOT_REASONS = ("WARNING", "[notice]", "note:", "hint:")


class Failed(Exception):
    """A measurement that gave no result; the message is the reason."""


def clean_environment(threads, **more):
    """The environment without what a launcher or batch system left in it, and with the threads of one process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHER_PREFIXES)}
    return {**kept, "OMP_NUM_THREADS": str(threads), **more}


def run(command, log, limit_seconds, environment):
    """Run a command to its end with its output in the file `log`. Raises Failed; leaves no process behind."""
    with open(log, "w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"took longer than {limit_seconds:g} s (--timeout)") from error
        finally:
            _end_group(process)
    if code:
        with open(log, errors="replace") as output:
            text = output.read()
        raise Failed(f"exit code {code}: {last_words(text)}")


def _end_group(process):
    """End what is left of the process's session, and wait until it is gone, so that the next measurement runs alone.

    A killed process lives until it is next scheduled, and then stays listed until process 1 has collected it, which not
    every container's does: the wait is limited.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        until = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.02)
    except ProcessLookupError:
        process.wait()


def last_words(text, most=300):
    """The line of an output that most likely says why it ended: the last that is fatal or names an error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(_NOT_REASONS)]
    fatal = [line for line in lines if line.startswith("fatal:")]
    telling = [line for line in lines if "error" in line.lower()]
    return (fatal or telling or lines or ["it said nothing"])[-1][:most]
