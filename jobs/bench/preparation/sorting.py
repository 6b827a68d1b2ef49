#!/usr/bin/env python3
"""The importer's own reading, sorting and merging of a text edge list, compared with DuckDB's.

Both read one file of random edges, add the reverse edges, drop duplicates, and write int32 edges in the order of
(destination, source) as HDF5. Each runs as a process of its own, with the same limit of memory, the number of threads
of this machine, and files on the same disk. The table has seconds, processor seconds and the peak of resident memory
(mapped pages of the input count); DuckDB over ours, of each repetition. Needs the package duckdb.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tabulate import tabulate

BATCH = 1 << 20
SORTED = "SELECT d, s FROM (SELECT a AS s, b AS d FROM e UNION SELECT b, a FROM e) ORDER BY d, s"
EPILOG = """example:
  pip install duckdb
  python jobs/bench/preparation/sorting.py --folder DIR --edges 1e8 --memory 1G --repeat 3
"""


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="a folder for files of 60 bytes per edge")
    parser.add_argument("--edges", type=float, default=1e7, help="edges of the file (default: 1e7)")
    parser.add_argument("--memory", default="1G", help="limit of memory for each (default: 1G)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sort", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    text = options.folder / "edges.txt"
    if options.sort:
        sort_by_duckdb(text, options)
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    write_edges(text, int(options.edges))
    here = [sys.executable, __file__, "--folder", str(options.folder), "--memory", options.memory, "--sort"]
    ours = [sys.executable, "-m", "partition_tools", "import", str(text), "-o", str(options.folder / "ours.h5")]
    commands = {"ours": [*ours, "--undirected", "--memory", options.memory, "--force"], "duckdb": here}
    measured = {name: [] for name in commands}
    for _ in range(options.repeat):
        for name, command in commands.items():
            measured[name].append(cost_of(command))
    rows = []
    for place, name in enumerate(("seconds", "processor seconds", "peak, MiB")):
        columns = [[each[place] for each in measured[tool]] for tool in commands]
        ratios = [theirs / mine for mine, theirs in zip(*columns, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((name, *(f"{statistics.median(column):,.0f}" for column in columns), spread))
    print(f"{options.edges:,.0f} edges of text, {options.memory} of memory, {options.repeat} repetitions")
    print(tabulate(rows, ("", *commands, "duckdb / ours"), tablefmt="github"))
    return 0


def cost_of(command):
    """(seconds, processor seconds, peak of resident MiB) of a command that must succeed."""
    script = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
    script += "u = resource.getrusage(resource.RUSAGE_CHILDREN); print(u.ru_maxrss / 1024); sys.exit(code)"
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begun, used, float(done.stdout.split()[-1])


def database(options):
    """A DuckDB connection with this machine's threads and a limit of memory."""
    import duckdb

    scratch = options.folder / "duckdb"
    scratch.mkdir(exist_ok=True)
    config = {"memory_limit": f"{options.memory}B", "temp_directory": str(scratch), "preserve_insertion_order": False}
    return duckdb.connect(config=config)


def write_edges(path, count):
    """Write random edges, a sixteenth as many nodes, hubs among the sources."""
    import duckdb

    ends = (
        f"CAST(floor({count // 16} * random() * random()) AS BIGINT), CAST(floor({count // 16} * random()) AS BIGINT)"
    )
    duckdb.sql(f"COPY (SELECT {ends} FROM range({count})) TO '{path}' (HEADER false, DELIMITER ' ')")


def sort_by_duckdb(path, options):
    """Write the sorted edges as HDF5."""
    import h5py

    columns = "{'a': 'INTEGER', 'b': 'INTEGER'}"
    edges = database(options)
    edges.execute(
        f"CREATE VIEW e AS SELECT * FROM read_csv('{path}', header = false, delim = ' ', columns = {columns})"
    )
    written = 0
    with h5py.File(options.folder / "duckdb.h5", "w") as file:
        arrays = [file.create_dataset(name, (0,), "i4", maxshape=(None,), chunks=(BATCH,)) for name in ("dst", "src")]
        for batch in edges.sql(SORTED).to_arrow_reader(BATCH):
            for place, array in enumerate(arrays):
                array.resize((written + batch.num_rows,))
                array[written:] = batch.column(place).to_numpy()
            written += batch.num_rows


if __name__ == "__main__":
    sys.exit(main())
