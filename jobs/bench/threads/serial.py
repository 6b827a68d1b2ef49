#!/usr/bin/env python3
"""How much of an epoch is serial: processor time of the main thread outside parallel regions, and regions.

    python jobs/bench/threads/serial.py --graph g.h5 --model sage --threads 1,16,64

A serial millisecond costs as much on 64 cores as 64 parallel ones. Each number of threads is a process of its own, in
which a small library (regions.c, compiled with cc) stands before the OpenMP runtime. W is the processor time of an
epoch at one thread. The share at T threads is serial / W, and the efficiency is 1 / (1 + (T - 1) share): Amdahl's law
alone. Memory is what the process grows by while it trains. Oversubscribed threads take more processor time than threads
that have a core each, so serial time is an upper bound.
"""

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parents[2])]  # shared parts, this checkout
from hpcgnn.__main__ import set_process_policies

set_process_policies()
import torch
from shared.job import run_benchmark

from hpcgnn.app.bring_up import bring_up
from hpcgnn.engine.trainer import Trainer
from hpcgnn.memory.resident import status
from hpcgnn.plugins.registry import make_plugins

#: Models with two layers of two heads of 32, as the general rule had them.
SMALLER = ("gatv2", "transformer")


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True, help="graph file")
    parser.add_argument("--model", default="sage", help="a model of `hpcgnn train` (default: sage)")
    parser.add_argument("--threads", default="1,2,16,64", help="numbers of threads (default: 1,2,16,64)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs that count (default: 3)")
    parser.add_argument("--warm", type=int, default=2, help="epochs before them that do not (default: 2)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", help="after --: options of `hpcgnn train`")
    return parser.parse_args()


def main() -> int:
    """Print the table, or measure inside a process that the table starts."""
    arguments = parse()
    if arguments.inside:
        return run_benchmark(
            "serial", lambda *each: _epochs(arguments, *each), arguments.graph, arguments.model, arguments.more,
            int(arguments.threads),
        )  # fmt: skip
    smaller = ["--layers", "2", "--hidden", "32", "--heads", "2"] if arguments.model in SMALLER else []
    more = [*smaller, *arguments.more]
    print(f"{arguments.model} {' '.join(more)}")
    print("threads  processor s  serial ms  share %  regions  efficiency %  grown MiB")
    with tempfile.TemporaryDirectory(prefix="serial-") as folder:
        library, one_thread = _compiled(Path(folder)), None
        numbers = [int(number) for number in arguments.threads.split(",")]
        for threads in sorted({1, *numbers}):
            found = _asked_inside(library, threads, arguments, more)
            one_thread = one_thread or found["processor"]
            share = found["serial"] / one_thread
            efficiency = 100 / (1 + (threads - 1) * share)
            if threads > 1 or 1 in numbers:
                print(
                    f"{threads:7}  {found['processor']:11.2f}  {1000 * found['serial']:9.1f}  {100 * share:7.1f}  "
                    f"{found['regions']:7.0f}  {efficiency:12.0f}  {found['grown'] / 2**20:9.0f}",
                    flush=True,
                )
    return 0


def _compiled(folder: Path) -> Path:
    """The library of regions.c. Raises SystemExit where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("serial.py: error: expected a C compiler, cc or gcc, found none; install one")
    library = folder / "regions.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, HERE / "regions.c", "-ldl"], check=True)
    return library


def _asked_inside(library: Path, threads: int, arguments: argparse.Namespace, more: list[str]) -> dict[str, float]:
    """What a process with so many threads prints last. SystemExit, with its last words, if it failed."""
    command = [sys.executable, __file__, "--inside", library, "--threads", threads, "--graph", arguments.graph]
    command += ["--model", arguments.model, "--epochs", arguments.epochs, "--warm", arguments.warm, "--", *more]
    # The affinity mask counts for the threads of a rank; here there may be more threads than cores.
    environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": str(threads), "OMP_DYNAMIC": "false"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"serial.py: error: {threads} threads: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _epochs(arguments: argparse.Namespace, session, config) -> int:
    library = ctypes.CDLL(arguments.inside)
    counters = [library.threads_regions, library.threads_inside, library.threads_all]
    for counter in counters:
        counter.restype = ctypes.c_int64
    with bring_up(config, session) as ready:
        local = ready.load()
    trainer = Trainer(local, ready.plan, session.comm, ready.buffers, make_plugins)
    torch.set_num_threads(int(arguments.threads))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: that of loading does not count
    before_training, found = status("VmRSS:"), []
    for epoch in range(arguments.warm + arguments.epochs):
        before, processor = [counter() for counter in counters], time.process_time()
        trainer.step(epoch)
        regions, inside, everything = (counter() - start for counter, start in zip(counters, before, strict=True))
        found.append((time.process_time() - processor, (everything - inside) / 1e9, regions))
    medians = [statistics.median(each) for each in zip(*found[arguments.warm :], strict=True)]
    result = dict(zip(("processor", "serial", "regions"), medians, strict=True))
    print(json.dumps(result | {"grown": status("VmHWM:") - before_training}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
