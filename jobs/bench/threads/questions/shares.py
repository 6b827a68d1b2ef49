"""How evenly the kernels with few shares fill many threads: tasks, and the efficiency of the busiest thread.

    python jobs/bench/threads/threads.py shares --rows 20000,100000,1000000 --threads 16,64,128

Each kernel runs once with that many threads, in a process in which a small library (tasks.c, compiled with cc) stands
before the OpenMP runtime. It writes down what each loop over tasks is given: its length, and the processor time of each
task. Tasks are then dealt out in order, each to the thread that is free first; the efficiency is the sum of all tasks /
(threads x the busiest thread). Two cores suffice: processor time is that of a thread alone. Loops of less than 1 % of
the time are left out, and so is what a thread does outside of tasks, which is shared evenly in advance.
"""

import argparse
import heapq
import json

from preloaded import asked_inside, compiled


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this question."""
    parser.add_argument("--rows", default="20000,100000,1000000", help="rows of a call (default: 20000,100000,1000000)")
    parser.add_argument("--threads", default="16,48,64,128", help="numbers of threads (default: 16,48,64,128)")
    parser.add_argument("--depth", type=int, default=256, help="columns of the input (default: 256)")
    parser.add_argument("--width", type=int, default=256, help="columns of the output (default: 256)")
    parser.add_argument("--kernels", default="project_backward,attend_backward", help="default: both")
    parser.add_argument("--degree", type=int, default=30, help="edges of a row, of attention (default: 30)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or run one kernel inside the process that the table starts."""
    if arguments.inside:
        return _record(arguments)
    print("kernel               rows  threads   tasks  efficiency")
    with compiled("tasks.c") as library:
        for kernel in arguments.kernels.split(","):
            for rows in map(int, arguments.rows.split(",")):
                for threads in map(int, arguments.threads.split(",")):
                    options = ["--kernels", kernel, "--rows", rows, "--depth", arguments.depth]
                    options += ["--width", arguments.width, "--degree", arguments.degree]
                    tasks, part = _efficiency(asked_inside("shares", library, threads, *options), threads)
                    print(f"{kernel:16}  {rows:8}  {threads:7}  {tasks:6}  {part:10.2f}", flush=True)
    return 0


def _efficiency(loops: list[list[int]], threads: int) -> tuple[int, float]:
    """(tasks, what of the threads' time they fill) of loops: whether threads wait at the end, nanoseconds of tasks."""
    everything = sum(sum(loop[1:]) for loop in loops)
    free, tasks, done = [0] * threads, 0, 0
    for waits, *loop in loops:
        if sum(loop) >= everything / 100:
            tasks, done = tasks + len(loop), done + sum(loop)
            for task in loop:
                heapq.heapreplace(free, free[0] + task)
        if waits:
            free = [max(free)] * threads
    return tasks, done / max(1, threads * max(free))


def _record(arguments: argparse.Namespace) -> int:
    import ctypes

    from hpcgnn.__main__ import set_process_policies

    set_process_policies()
    import torch

    library = ctypes.CDLL(arguments.inside)
    for name in ("loops", "tasks", "task", "waits"):
        getattr(library, f"threads_{name}").restype = ctypes.c_int64
    torch.set_num_threads(int(arguments.threads))
    call = _projection(arguments) if arguments.kernels == "project_backward" else _attention(arguments)
    call()
    library.threads_begin()
    call()
    loops = [
        [
            library.threads_waits(loop),
            *(library.threads_task(loop, task) for task in range(library.threads_tasks(loop))),
        ]
        for loop in range(library.threads_loops())
    ]
    print(json.dumps(loops))
    return 0


def _projection(arguments: argparse.Namespace):
    import torch

    from hpcgnn import kernels

    rows, depth, width = int(arguments.rows), arguments.depth, arguments.width
    x, gradient, gx = torch.randn(rows, depth), torch.randn(rows, width), torch.empty(rows, depth)
    weight, g_weight = torch.randn(depth, width), torch.zeros(depth, width)
    return lambda: kernels.project_backward(gx, g_weight, x, gradient, weight)


def _attention(arguments: argparse.Namespace):
    import torch

    from hpcgnn import kernels

    rows, heads = int(arguments.rows), 4
    width, edges = arguments.width, rows * arguments.degree
    indptr = torch.arange(0, edges + 1, arguments.degree)
    indices = torch.randint(rows, (edges,), dtype=torch.int32)
    own, remote = torch.randn(rows, width + heads), torch.randn(rows, width + 3 * heads)
    gz, ga_src, ga_dst = torch.zeros(rows, width), torch.zeros(rows, heads), torch.zeros(rows, heads)
    return lambda: kernels.attend_backward(gz, ga_src, ga_dst, own, remote, indptr, indices, heads=heads, slope=0.2)
