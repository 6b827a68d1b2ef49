"""A user at a login node: commands, with a limit on their time, and waiting for jobs."""

import os
import subprocess
import sys
import time
from pathlib import Path

from core import launching

ROOT = Path(__file__).parents[2]
# A job takes some seconds, most of them for loading torch; on a busy machine ten times that.
LIMIT_SECONDS = 240
#: What squeue calls a job that has not ended; it shows a job as SIGNALING while it passes a signal on.
UNFINISHED = ("PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING", "REQUEUED")
LOCAL = ROOT / "env" / "slurm-local.sh"


def clean_environment(**more):
    """The environment of `launching`; python is the one that runs the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return launching.clean_environment(**{"PATH": path, "OMP_WAIT_POLICY": "passive", **more})


def call(command, cwd=ROOT, limit=LIMIT_SECONDS, **environment):
    """Run a line of shell as a user types it; returns the finished process with its texts."""
    return subprocess.run(
        ["bash", "-c", command] if isinstance(command, str) else [str(word) for word in command],
        cwd=cwd,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=limit,
    )


class Cluster:
    """The local SLURM, seen from a login node whose current directory is `home`."""

    def __init__(self, environment, home):
        self.environment, self.home = environment, home

    def run(self, command, check=True, **environment):
        """Run a command line; fails the test if it fails, unless check is False."""
        done = call(command, self.home, **self.environment, **environment)
        assert done.returncode == 0 or not check, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def submit(self, options):
        """sbatch; returns the number of the job."""
        return self.run(f"sbatch --parsable {options}").stdout.strip().split(";")[0]

    def jobs(self):
        """{number: state} of all jobs that SLURM remembers, arrays by task."""
        fields = (line.split("|") for line in self.run("squeue -h -t all -o '%A|%T'").stdout.splitlines())
        return {number: state for number, state in fields}

    def state(self, job):
        return self.jobs()[job]

    def wait(self, *jobs, limit=LIMIT_SECONDS):
        """Until these jobs (default: all) have ended; returns {number: state}."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            states = self.jobs()
            running = [job for job in (jobs or states) if states[job] in UNFINISHED]
            if not running:
                return {job: states[job] for job in (jobs or states)}
            time.sleep(0.5)
        raise AssertionError(f"still not done after {limit} s: {self.run('squeue -l').stdout}")
