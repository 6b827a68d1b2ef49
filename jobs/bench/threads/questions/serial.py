"""How much of an epoch is serial: processor time of the main thread outside parallel regions, and regions.

    python jobs/bench/threads/threads.py serial --graph g.h5 --model sage --threads 1,16,64

A serial millisecond costs as much on 64 cores as 64 parallel ones. Each number of threads is a process of its own, in
which a small library (regions.c, compiled with cc) stands before the OpenMP runtime. W is the processor time of an
epoch at one thread. The share at T threads is serial / W, and the efficiency is 1 / (1 + (T - 1) share): Amdahl's law
alone. Memory is what the process grows by while it trains. Oversubscribed threads take more processor time than threads
that have a core each, so serial time is an upper bound.
"""

import argparse
import ctypes
import json
import statistics
from pathlib import Path

from preloaded import asked_inside, compiled

#: What the comparison with peers takes, but for models of which the general rule computes: those are smaller.
OPTIONS: dict[str, list[str]] = dict.fromkeys(
    ("gatv2", "transformer"), ["--layers", "2", "--hidden", "32", "--heads", "2"]
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this question."""
    parser.add_argument("--graph", required=True, help="graph file")
    parser.add_argument("--model", default="sage", help="a model of `hpcgnn train` (default: sage)")
    parser.add_argument("--threads", default="1,2,16,64", help="numbers of threads (default: 1,2,16,64)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs that count (default: 3)")
    parser.add_argument("--warm", type=int, default=2, help="epochs before them that do not (default: 2)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", help="after --: options of `hpcgnn train`")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or measure inside the process that the table starts."""
    if arguments.inside:
        return _measure(arguments)
    one_thread = None
    print(f"{arguments.model} {' '.join(_more(arguments))}")
    print("threads  processor s  serial ms  share %  regions  efficiency %  grown MiB")
    with compiled("regions.c") as library:
        numbers = [int(number) for number in arguments.threads.split(",")]
        for threads in sorted({1, *numbers}):
            options = ["--graph", arguments.graph, "--model", arguments.model, "--epochs", arguments.epochs]
            options += ["--warm", arguments.warm]
            found = asked_inside("serial", library, threads, *options, "--", *_more(arguments))
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


def _more(arguments: argparse.Namespace) -> list[str]:
    return [*OPTIONS.get(arguments.model, []), *arguments.more]


def _measure(arguments: argparse.Namespace) -> int:
    from hpcgnn.__main__ import set_process_policies

    set_process_policies()
    from shared.trainer import run_benchmark

    return run_benchmark(
        "threads", lambda *each: _epochs(arguments, *each), arguments.graph, arguments.model, arguments.more,
        int(arguments.threads),
    )  # fmt: skip


def _epochs(arguments: argparse.Namespace, session, config) -> int:
    import time

    import torch
    from shared.trainer import make_trainer

    from hpcgnn.memory.resident import status

    library = ctypes.CDLL(arguments.inside)
    counters = [library.threads_regions, library.threads_inside, library.threads_all]
    for counter in counters:
        counter.restype = ctypes.c_int64
    trainer, _, _ = make_trainer(config, session)
    torch.set_num_threads(int(arguments.threads))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: that of loading does not count
    before_training, found = status("VmRSS:"), []
    for epoch in range(arguments.warm + arguments.epochs):
        before, processor = [counter() for counter in counters], time.process_time()
        trainer.step(epoch)
        regions, inside, everything = (counter() - start for counter, start in zip(counters, before))
        found.append((time.process_time() - processor, (everything - inside) / 1e9, regions))
    names = ("processor", "serial", "regions")
    result = {name: statistics.median(each) for name, each in zip(names, zip(*found[arguments.warm :]))}
    print(json.dumps(result | {"grown": status("VmHWM:") - before_training}))
    return 0
