#!/usr/bin/env python3
"""The memory of a node's ranks with imports of their own, and forked from one process (HPCGNN_FORK_SERVER=1).

    python jobs/bench/memory/fork_server.py GRAPH.h5 --ranks 4,16

Starts a training of many epochs under mpiexec, waits for its first epoch, and prints a line. It has the MiB of all
processes of the job by /proc/*/smaps_rollup (pages that several share count once), and their processor seconds until
then.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VARIABLE = "FORK_SERVER_BENCH"
OPTIONS = ("--hidden", "16", "--layers", "2", "--epochs", "1000000", "--eval-every", "0", "--watchdog", "0")
TICKS = os.sysconf("SC_CLK_TCK")


def processes(mark: str) -> dict[Path, str]:
    """{folder in /proc: command} of the processes whose environment has the mark."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{VARIABLE}={mark}".encode() in (folder / "environ").read_bytes():
                found[folder] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def show(label: str, mark: str) -> None:
    """Print the memory of the processes of a job."""
    total = private = seconds = 0.0
    proxies = []
    for folder, command in processes(mark).items():
        pages = {
            name: int(kib) / 1024
            for name, kib in re.findall(r"(\w+): +(\d+) kB", (folder / "smaps_rollup").read_text())
        }
        own = pages["Private_Clean"] + pages["Private_Dirty"]
        total, private = total + pages["Pss"], private + own
        if "proxy.py" in command:
            proxies.append(own)
        times = (folder / "stat").read_text().rpartition(")")[2].split()
        seconds += (int(times[11]) + int(times[12])) / TICKS
    each = f", proxies {sum(proxies) / len(proxies):5.1f} each" if proxies else ""
    print(f"{label:28} sum {total:8.1f} MiB, private {private:8.1f}{each}, {seconds:6.1f} s", flush=True)


def measure(graph: str, ranks: int, fork: str) -> None:
    """Start a job, show it, and end it."""
    mark = f"{os.getpid()}-{ranks}-{fork}"
    environment = os.environ | {"HPCGNN_FORK_SERVER": fork, VARIABLE: mark, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = ["mpiexec", "-n", str(ranks), sys.executable, "-m", "hpcgnn", "train", "--graph", graph, *OPTIONS]
        with log.open("w") as output:
            job = subprocess.Popen(
                [*command, "--run-dir", f"{folder}/run"], env=environment, stdout=output, stderr=output
            )
        try:
            while "epoch 1/" not in log.read_text():
                if job.poll() is not None:
                    sys.exit(log.read_text())
                time.sleep(0.1)
            show(f"{ranks} ranks, {'forked' if fork == '1' else 'by themselves'}", mark)
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="graph file with maps for these ranks")
    parser.add_argument("--ranks", default="4,16", help="numbers of ranks (4,16)")
    options = parser.parse_args()
    for ranks in map(int, options.ranks.split(",")):
        for fork in "01":
            measure(options.graph, ranks, fork)


if __name__ == "__main__":
    main()
