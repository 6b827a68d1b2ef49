#!/usr/bin/env python3
"""What it takes to load a graph, by the number of ranks: seconds, bytes read from the file, and memory.

Starts one MPI job after another, each of which opens the graph, chooses its map, loads every rank's share and makes its
halo plan, as `hpcgnn train` does. A small graph is loaded first, so that what a process takes once whatever the graph
(code, connections between ranks) is not counted. All of it is repeated, and the least seconds of the repetitions stand
in the table, those of the slowest rank in each. Memory and bytes are those of the first.

  open       the file is opened and checked, and the map is chosen
  load       a rank's slabs are read, checked and put in order
  plan       the ranks tell each other which rows they want, and blocks are made
  read       bytes from the file, as the kernel counts them for a process, and the calls that took them
  growth     the kernel's high-water mark of resident memory, less what was resident before
  kept       bytes of the arrays that a rank has in the end; growth / kept is that of the rank which keeps most
  sent       bytes that all ranks send for the plan

The file is in the page cache, since it is read whole at the beginning. Ranks that share cores say little about seconds
at that number of ranks on a cluster; the processor seconds of all ranks together say what the work is.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
from hpcgnn.__main__ import set_process_policies

set_process_policies()  # before torch is loaded, as the program does it

from shared.job import run_benchmark
from shared.launched import parallel, quietly
from shared.tables import write_csv
from tabulate import tabulate

from hpcgnn.records import to_json, write_atomically

EPILOG = """examples:
  python jobs/bench/preparation/loading.py --graph planted.h5
  python jobs/bench/preparation/loading.py --graph planted.h5 --ranks 1,4,16 --out loading -- --assignment random-nodes
"""
PHASES = "open", "load", "plan"


def main():
    """Entry point; returns the exit code."""
    options = arguments()
    if options.job:
        return run_benchmark(
            "loading",
            lambda session, config: measure(session, config, options.graph, options.small, options.repeat),
            options.small,
            options.model,
            options.more,
            1,
        )
    size, seconds = read_raw(options.graph)
    print(f"{options.graph}: {size / 1e6:,.1f} MB, read by one process at {size / seconds / 1e6:,.0f} MB/s", flush=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="loading-") as folder:
        for ranks in map(int, options.ranks.split(",")):
            rows.append(summary_of(ranks, job(options, ranks, Path(folder)), size))
            print(table(rows[-1:]) if len(rows) == 1 else table(rows[-1:]).splitlines()[-1], flush=True)
    document = {"graph": options.graph, "file_bytes": size, "raw_seconds": seconds, "runs": rows}
    if options.out:
        write_atomically(f"{options.out}.json", to_json(document, indent=1))
        write_csv(f"{options.out}.csv", [{key: row[key] for key in row if key != "by_rank"} for row in rows])
    return 0


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--graph", required=True, help="graph file")
    parser.add_argument("--ranks", default="1,2,4,8,16,32,64", help="numbers of ranks (default: 1,2,4,8,16,32,64)")
    parser.add_argument("--model", default="gcn", help="whose edges are loaded (default: gcn)")
    parser.add_argument("--repeat", type=int, default=3, help="loads at each number of ranks (default: 3)")
    parser.add_argument("--out", help="write OUT.json and OUT.csv")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--small", help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", metavar="-- OPTIONS", help="options of hpcgnn train, such as --assignment")
    return parser.parse_args()


def read_raw(path):
    """(bytes of a file, seconds to read it once it is in the page cache)."""
    space, seconds = bytearray(64 << 20), []
    for _ in range(3):
        started, size = time.perf_counter(), 0
        with open(path, "rb", buffering=0) as file:
            while part := file.readinto(space):
                size += part
        seconds.append(time.perf_counter() - started)
    return size, min(seconds)


def job(options, ranks, folder):
    """What every rank measured, by rank: the records of an MPI job."""
    small, tool = folder / f"small-{ranks}.h5", [sys.executable, "-m", "partition_tools"]
    shape = ["--nodes", 64 * ranks, "--degree", 15, "--features", 8, "--classes", 4]
    quietly([*tool, "generate", "planted", "-o", small, *shape])
    quietly([*tool, "partition", small, "--ranks", ranks])
    what = ["--graph", options.graph, "--small", small, "--model", options.model, "--repeat", options.repeat]
    said = quietly(parallel(ranks, __file__, "--job", *what, "--", *options.more))
    return json.loads(said.splitlines()[-1])


def measure(session, config, graph, small, repeat):
    """Load the small graph, then the graph so many times; rank 0 prints the records of all ranks. Collective."""
    comm = session.comm
    load(session, config)
    config, records = config.replace(graph=graph), []
    for _ in range(repeat):
        comm.barrier()
        records.append(load(session, config))
    first = records[0]
    for key in first:
        if key.startswith("seconds"):
            first[key] = [record[key] for record in records]
    everyone = comm.allgather_object(first)
    if comm.rank == 0:
        print(to_json(everyone), flush=True)
    return 0


def load(session, config):
    """{figure: value} of one loading on this rank. Collective."""
    import contextlib

    from hpcgnn.app.choosing_maps import choose_map
    from hpcgnn.exchange.buffers import HaloBuffers
    from hpcgnn.graph.load import load_local_graph
    from hpcgnn.graph.opening import open_graph
    from hpcgnn.memory.resident import resident_bytes
    from hpcgnn.nn.registry import MODELS
    from hpcgnn.plan.model_spec import model_spec
    from hpcgnn.plugins.account import held_bytes
    from hpcgnn.plugins.memory_profile import PeakMemory, trim_heap

    comm, found = session.comm, {}
    comm.ledger.take()
    trim_heap()
    peak, before, read = PeakMemory(), resident_bytes(), bytes_read()
    begun = time.process_time()

    @contextlib.contextmanager
    def watch(phase):
        peak.reset()
        started, read = time.perf_counter(), bytes_read()
        yield
        found[f"seconds_{phase}"] = found.get(f"seconds_{phase}", 0.0) + time.perf_counter() - started
        found[f"growth_{phase}"] = max(found.get(f"growth_{phase}", 0), peak.read() - before)
        found[f"read_{phase}"] = found.get(f"read_{phase}", 0) + bytes_read()[0] - read[0]

    with contextlib.ExitStack() as stack:
        with watch("open"):
            file = stack.enter_context(open_graph(config.data.graph, comm))
            _, cluster_to_rank = choose_map(file, config, comm)
        spec = model_spec(file.meta, config)
        cap = HaloBuffers(8 << 20).cap(4 * config.model.hidden)
        edges = MODELS[spec.model].reads_edges(spec)
        local = load_local_graph(file, cluster_to_rank, comm, cap, "add", spec.dtype, edges, watch)
    found["seconds_processor"] = time.process_time() - begun
    found["read_bytes"], found["read_calls"] = (now - then for now, then in zip(bytes_read(), read, strict=True))
    found["growth"], found["kept"] = max(found[f"growth_{phase}"] for phase in PHASES), held_bytes(local, set())
    traffic = comm.ledger.take()
    found |= {f"sent_{kind}": entry.bytes_sent for kind, entry in traffic.items()}
    found["messages_plan"] = traffic["plan"].messages if "plan" in traffic else 0
    return found


def bytes_read():
    """(bytes, calls) that this process has read, as the kernel counts them; what MPI receives is not among them."""
    with open("/proc/self/io", encoding="ascii") as file:
        counts = dict(line.split(": ") for line in file)
    return int(counts["rchar"]), int(counts["syscr"])


def summary_of(ranks, records, size):
    """The row of the table of one number of ranks. records: of its ranks."""
    row = {"ranks": ranks}
    for phase in (*PHASES, "processor"):
        of_repetitions = zip(*(record[f"seconds_{phase}"] for record in records), strict=True)
        row[f"seconds_{phase}"] = min(map(sum if phase == "processor" else max, of_repetitions))
    read = [record["read_bytes"] for record in records]
    row |= {"read_max": max(read), "read_mean": sum(read) / ranks, "read_over_file": sum(read) / size}
    row["calls_max"] = max(record["read_calls"] for record in records)
    growth, largest = [record["growth"] for record in records], max(records, key=lambda record: record["kept"])
    row |= {"growth_max": max(growth), "growth_mean": sum(growth) / ranks}
    row |= {f"growth_{phase}": max(record[f"growth_{phase}"] for record in records) for phase in ("load", "plan")}
    row |= {"kept_max": largest["kept"], "kept_sum": sum(record["kept"] for record in records)}
    row["growth_over_kept"] = largest["growth"] / largest["kept"]
    row["sent_plan"] = sum(record.get("sent_plan", 0) for record in records)
    row["messages_plan_max"] = max(record["messages_plan"] for record in records)
    return row | {"by_rank": records}


def table(rows):
    """Rows of `summary_of` as text."""
    columns = [
        ("ranks", "ranks", 1, ""),
        *((f"{phase} (s)", f"seconds_{phase}", 1, ".3f") for phase in PHASES),
        ("processor, all (s)", "seconds_processor", 1, ".2f"),
        ("read, max (MB)", "read_max", 1e6, ".2f"),
        ("mean (MB)", "read_mean", 1e6, ".2f"),
        ("all / file", "read_over_file", 1, ".2f"),
        ("calls", "calls_max", 1, ""),
        ("growth, max (MB)", "growth_max", 1e6, ".1f"),
        ("mean (MB)", "growth_mean", 1e6, ".1f"),
        ("kept, max (MB)", "kept_max", 1e6, ".1f"),
        ("growth / kept", "growth_over_kept", 1, ".2f"),
        ("sent (MB)", "sent_plan", 1e6, ".2f"),
        ("messages", "messages_plan_max", 1, ""),
    ]
    cells = [[format(row[key] / by if by != 1 else row[key], how) for _, key, by, how in columns] for row in rows]
    return tabulate(cells, [heading for heading, *_ in columns], tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    sys.exit(main())
