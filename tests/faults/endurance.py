"""A day's worth of epochs in minutes: 100,000 steps on a small graph, with flat memory and flat file descriptors.

    python tests/faults/endurance.py                       # 100,000 steps at 4 ranks
    python tests/faults/endurance.py --crowd 64            # so many ranks on this machine start, train and stop

What leaks a page per step is not seen in a test of ten steps and ends a run of a week. Resident memory and open files
of every rank are read from outside while it trains; exit code 1 if a rank's memory has grown by more than GROWTH_BYTES
between the first tenth of the steps and the last one, or if it has more files open.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
import harness  # noqa: E402

from partition_tools.cli.generate_graph import generate_graph  # noqa: E402
from partition_tools.cli.partition_graph import partition_graph  # noqa: E402
from partition_tools.generators.spec import Spec  # noqa: E402

PAGE = os.sysconf("SC_PAGE_SIZE")
# What an allocator rearranges; 100,000 steps that each lost 64 bytes would lose 6 MB.
GROWTH_BYTES = 4 << 20
MODEL = ("--model", "gcn", "--layers", "2", "--hidden", "8", "--seed", "1")


def command(ranks, graph, run_dir, *options):
    """Of a training run at so many ranks."""
    launcher = harness.LAUNCHER if harness.LAUNCHER.exists() else "mpiexec"
    train = [sys.executable, "-m", "hpcgnn", "train", "--graph", graph, "--run-dir", run_dir, *MODEL, *options]
    return [str(word) for word in [launcher, "-n", ranks, *train]]


def ranks_below(launcher):
    """{rank: process id} of a job's ranks, among all descendants of the launcher's process."""
    parents, found, family = {}, {}, {launcher}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    for process in sorted(parents):
        ancestor = process
        while ancestor in parents and ancestor not in family:
            ancestor = parents[ancestor]
        if ancestor in family:
            family.add(process)
            variables = dict(_variables(process))
            if "PMI_RANK" in variables and not {parents[process]} & set(found.values()):
                found[int(variables["PMI_RANK"])] = process
    return found


def _variables(process):
    try:
        text = Path(f"/proc/{process}/environ").read_bytes().decode()
    except OSError:
        return
    for entry in text.split("\0"):
        name, mark, value = entry.partition("=")
        if mark:
            yield name, value


def look(process):
    """(resident bytes, open files) of a process."""
    resident = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
    return resident, len(os.listdir(f"/proc/{process}/fd"))


def epochs_done(path, before):
    """(number of epochs in metrics.jsonl, bytes of it that have been counted). before: what this said last."""
    count, place = before
    if path.exists():
        with open(path, "rb") as file:
            file.seek(place)
            while part := file.read(1 << 22):
                count, place = count + part.count(b"\n"), place + len(part)
    return count, place


def endure(steps, ranks, folder, every, timeout):
    """Run so many steps and watch; returns [(epoch, {rank: (resident bytes, open files)})]."""
    graph, run_dir = folder / "graph.h5", folder / "run"
    generate_graph("planted", graph, Spec(nodes=200, degree=4, features=8, classes=3, seed=1))
    partition_graph(graph, [ranks], num_clusters=4 * ranks)
    every_so_many = max(1, steps // 100)
    options = [
        "--epochs",
        steps,
        "--eval-every",
        every_so_many,
        "--checkpoint-every",
        every_so_many,
        "--log-every",
        steps,
    ]
    samples, done = [], (0, 0)
    with open(folder / "said", "w") as said:
        job = subprocess.Popen(
            command(ranks, graph, run_dir, *options),
            env=harness.clean_environment(),
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        end = time.monotonic() + timeout
        try:
            while job.poll() is None:
                time.sleep(every)
                if time.monotonic() > end:
                    print(f"ended after {timeout:.0f} s and {done[0]} of {steps} steps")
                    return samples
                done = epochs_done(run_dir / "metrics.jsonl", done)
                try:
                    seen = {rank: look(process) for rank, process in ranks_below(job.pid).items()}
                except OSError:
                    continue
                if len(seen) == ranks and 0 < done[0] < steps:
                    samples.append((done[0], seen))
        finally:
            job.terminate()
            job.wait(60)
    if job.returncode != 0:
        raise SystemExit(f"the job ended with code {job.returncode}:\n{(folder / 'said').read_text()[-3000:]}")
    return samples


def judge(samples):
    """(rows of a table, whether all is flat): each rank after the first tenth of the steps, and at the end."""
    late = [] if not samples else [sample for sample in samples if sample[0] >= samples[-1][0] // 10]
    if len(late) < 2:
        raise SystemExit(f"only {len(late)} looks after a tenth of the steps; look oftener with --every")
    (first, begin), (last, end) = late[0], late[-1]
    rows, flat = [], True
    for rank in sorted(begin):
        (memory, files), (memory_then, files_then) = begin[rank], end[rank]
        flat = flat and memory_then - memory <= GROWTH_BYTES and files_then <= files
        rows.append([rank, first, f"{memory / 2**20:.2f}", files, last, f"{memory_then / 2**20:.2f}", files_then])
    return rows, flat


def crowd(ranks, folder, timeout):
    """Many more ranks than cores start, train and stop; returns the seconds that it took."""
    graph, run_dir = folder / "graph.h5", folder / "run"
    generate_graph("planted", graph, Spec(nodes=4 * ranks, degree=4, features=8, classes=3, seed=1))
    partition_graph(graph, [ranks], num_clusters=2 * ranks)
    words, begin = command(ranks, graph, run_dir, "--epochs", 5, "--watchdog", timeout), time.monotonic()
    done = subprocess.run(words, env=harness.clean_environment(), capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0 or not (run_dir / "summary.json").exists():
        raise SystemExit(f"code {done.returncode}:\n{done.stderr[-3000:]}")
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two looks (default 2)")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds after which it is ended (default 7200)")
    parser.add_argument("--crowd", type=int, metavar="RANKS", help="only start, train and stop so many ranks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpcgnn-endurance-") as folder:
        if options.crowd:
            seconds = crowd(options.crowd, Path(folder), options.timeout)
            print(f"{options.crowd} ranks started, trained and stopped in {seconds:.0f} s")
            return 0
        begin = time.monotonic()
        samples = endure(options.steps, options.ranks, Path(folder), options.every, options.timeout)
        seconds = time.monotonic() - begin
    rows, flat = judge(samples)
    print(tabulate(rows, ["rank", "after epoch", "MiB", "files", "after epoch", "MiB", "files"], tablefmt="pipe"))
    verdict = "flat" if flat else "NOT FLAT"
    print(f"\n{samples[-1][0]} steps at {options.ranks} ranks in {seconds:.0f} s, {len(samples)} looks: {verdict}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
