"""How much of an epoch is serial: processor time of the main thread outside parallel regions, and regions.

    python jobs/bench/serial.py --graph g.h5 --threads 64 -- --model sage --layers 3 --hidden 256 --dropout 0.5

On 64 cores a serial millisecond costs as much as 64 parallel ones. A rank trains with one thread, and then with so
many. A small library, compiled with cc, stands before the OpenMP runtime there and counts. An epoch has its evaluation.
W is the processor time of an epoch at one thread. The share is serial time over W. Oversubscribed threads take more
processor time than threads with cores of their own, so serial time is an upper bound. The first two epochs do not
count, nor does the last, which writes a checkpoint. Of the others the line has the medians.
"""

import argparse
import contextlib
import ctypes
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# torch's libraries are not in the global scope, so RTLD_NEXT would not see the runtime. One thread makes no region.
COUNTING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void (*begin)(void (*)(void *), void *, unsigned, unsigned);
long serial_counted[2];
static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}
static int look(struct dl_phdr_info *info, size_t size, void *found)
{
    void *runtime = strstr(info->dlpi_name, "libgomp") ? dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return (*(void **)found = runtime ? dlsym(runtime, "GOMP_parallel") : NULL) != NULL;
}
void GOMP_parallel(void (*function)(void *), void *data, unsigned num_threads, unsigned flags)
{
    static __thread int depth;
    if (!begin)
        dl_iterate_phdr(look, &begin);
    const int counts = num_threads != 1 && !depth && getpid() == gettid();
    const long start = counts ? now() : 0;
    depth++;
    begin(function, data, num_threads, flags);
    depth--;
    if (counts)
        serial_counted[0]++, serial_counted[1] += now() - start;
}
"""

#: The environment variable that names a plugin beside this one: a run takes one.
PLUGIN = "HPCGNN_SERIAL_PLUGIN"


def counted():
    """(processor nanoseconds, those of this thread outside regions, regions) so far."""
    regions, inside = (ctypes.c_long * 2).in_dll(ctypes.CDLL(None), "serial_counted")
    return time.process_time_ns(), time.thread_time_ns() - inside, regions


def plugin(trainer, learns):
    """A plugin that prints what each epoch took."""
    from hpcgnn.engine.hooks import Plugin

    class Counts(Plugin):
        @contextlib.contextmanager
        def epoch(self, number):
            before = counted()
            yield
            print("counted", *(after - start for after, start in zip(counted(), before, strict=True)), flush=True)

    return Counts() if learns else None


def medians(options, library, folder, threads):
    """The medians of `counted` over the epochs of a process with so many threads."""
    command = [sys.executable, "-m", "hpcgnn", "train", "--graph", options.graph, "--run-dir", folder / str(threads)]
    command += ["--threads", threads, "--epochs", options.epochs + 3, "--plugin", __file__, *options.more]
    more = {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": str(threads), PLUGIN: options.plugin or ""}
    done = subprocess.run([*map(str, command)], env=os.environ | more, capture_output=True, text=True)
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("counted")]
    if done.returncode or not found:
        sys.exit(f"{threads} threads: exit code {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return [statistics.median(map(int, column)) for column in zip(*found[2:-1], strict=True)]


def main():
    """Print a line of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True, help="graph file")
    parser.add_argument("--threads", type=int, default=64, help="number of threads (default: 64)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs that count (default: 3)")
    parser.add_argument("--plugin", help="a file with the model")
    parser.add_argument("more", nargs="*", help="after --: options of `hpcgnn train`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serial-") as folder:
        library = Path(folder) / "counting.so"
        compiler = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"]
        subprocess.run(compiler, input=COUNTING, text=True, check=True)
        whole, *_ = medians(options, library, Path(folder), 1)
        _, serial, regions = medians(options, library, Path(folder), options.threads)
    share, more = serial / whole, " ".join(options.more)
    print(f"W {whole / 1e9:.2f} s  serial {serial / 1e6:.1f} ms  {100 * share:.2f} %  regions {regions:.0f}  {more}")


if __name__ == "__main__":
    main()
else:
    from hpcgnn.plugins.registry import TRAINER_PLUGINS

    TRAINER_PLUGINS.register("serial", plugin)
    if file := os.environ.get(PLUGIN):
        runpy.run_path(file)
