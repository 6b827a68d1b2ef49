"""Parallel jobs as a user starts them: the command line, a run that must succeed, and the results in its directory."""

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """A run directory. summary: of summary.json; last: the record of its last epoch; processor, wall: processor seconds
    of an epoch on all ranks together, and seconds of an epoch: the least of the epochs after the first. seconds:
    {phase: seconds of the slowest rank}, the median of those epochs. losses: of these epochs.
    """

    summary: dict
    last: dict
    processor: float
    wall: float
    seconds: dict
    losses: list


def parallel(ranks, *command):
    """[mpiexec -n RANKS python, *command]: mpiexec of this environment, where it has one."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", ranks, sys.executable, *command]


def quietly(command, enter=None):
    """The output of a command (of anything that `str` takes), or SystemExit with its output. enter: see
    `limited.Group`.
    """
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, preexec_fn=enter)
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))}\nexit code {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def measured(run_dir):
    """The Measured of a run directory of two epochs or more."""
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()][1:]
    parts = "user_seconds", "system_seconds"
    return Measured(
        json.loads((run_dir / "summary.json").read_text()),
        records[-1],
        min(sum(record["cpu"][part]["sum"] for part in parts) for record in records),
        min(record["seconds"]["epoch"]["max"] for record in records),
        {
            phase: statistics.median(record["seconds"][phase]["max"] for record in records)
            for phase in records[0]["seconds"]
        },
        [record["loss"] for record in records],
    )
