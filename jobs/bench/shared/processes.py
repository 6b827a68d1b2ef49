"""Measurements are fresh processes with a limit on their time, and the last line of a failed one is its reason."""

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
    """The environment without the variables of a launcher or batch system, and with the threads of one process."""
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
    """End a process and all that it has started, and wait until they are gone.

    Ranks of a launcher are in sessions of their own. The next measurement must run alone.
    A killed process lives until it is next scheduled. One that nobody collects stays listed, but holds nothing.
    """
    started = descendants(process.pid)
    for end, number in ((os.killpg, process.pid), *((os.kill, number) for number in started)):
        try:
            end(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    process.wait()
    until = time.monotonic() + _GONE_SECONDS
    while any(_state(number)[0] not in "ZX" for number in started) and time.monotonic() < until:
        time.sleep(0.02)


def descendants(ancestor):
    """The numbers of the processes that a process has started, directly or not, and that are still there."""
    parents = {int(name): _state(int(name))[1] for name in os.listdir("/proc") if name.isdigit()}
    found = [ancestor]
    for number in found:
        found += [child for child, parent in parents.items() if parent == number]
    return found[1:]


def _state(number):
    """(state, parent) of a process: X, 0 if there is none."""
    try:
        with open(f"/proc/{number}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:
        return "X", 0
    return state, int(parent)


def last_words(text, most=300):
    """The line of an output with the likeliest reason of its end: the last that is fatal or names an error, else the
    last.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(_NOT_REASONS)]
    fatal = [line for line in lines if line.startswith("fatal:")]
    telling = [line for line in lines if "error" in line.lower()]
    return (fatal or telling or lines or ["it said nothing"])[-1][:most]
