#!/usr/bin/env python3
"""The memory that libraries take in a process, after each import, and what a fork of such a process has of its own.

    python jobs/bench/memory/libraries.py

Prints a line for each, in MiB, by /proc/self/smaps (Linux). Private pages are those that no other process has mapped.
"""

import ctypes
import gc
import importlib
import importlib.util
import os
import re
import sys
from collections import Counter
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[3])]  # this checkout
MODULES = ("numpy", "torch", "h5py", "mpi4py.MPI", "hpcgnn.app.train")


def show(label: str) -> None:
    """Print what the process takes now."""
    pages: Counter[str] = Counter()
    kind = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if head := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)", line):
            kind = "heap" if head[1] == "[heap]" else "other"
        elif line.startswith("Rss:"):
            pages["resident"] += int(line.split()[1])
        elif line.startswith("Private_") and "Hugetlb" not in line:
            pages["private"] += int(line.split()[1])
            pages[f"private {kind}"] += int(line.split()[1])
    found = (f"{name} {pages[name] / 1024:6.1f}" for name in ("resident", "private", "private heap"))
    print(f"{label:34}", *found, f"modules {len(sys.modules)}", flush=True)


def in_fork(label: str, freeze: bool) -> None:
    """Print what a fork has of its own after three steps of a small layer. freeze: whether gc.freeze() comes before."""
    if freeze:
        gc.freeze()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    import torch

    x, weight = torch.randn(2000, 64), torch.randn(64, 64, requires_grad=True)
    for _ in range(3):
        (x @ weight).relu().sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
    gc.collect()
    show(label)
    os._exit(0)


def main() -> None:
    import_mpi = importlib.import_module("mpi4py")
    import_mpi.rc.initialize = False  # no launcher is needed, and a fork would not have its connection
    show("Python")
    for name in MODULES:
        if name == "torch":
            spec = importlib.util.find_spec(name)
            assert spec is not None and spec.origin is not None, "torch is installed"
            for library in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so"):
                ctypes.CDLL(str(Path(spec.origin).parent / "lib" / library), ctypes.RTLD_GLOBAL)
            show("torch's C++ library alone")
        importlib.import_module(name)
        show(name)
    in_fork("a fork, after three steps", False)
    in_fork("a fork after gc.freeze()", True)


if __name__ == "__main__":
    main()
