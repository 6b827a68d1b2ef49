#!/usr/bin/env python3
"""What each rank of a job of hundreds or thousands of ranks makes, sends and receives: exactly, in one process.

    python jobs/bench/many_ranks/many_ranks.py --graph GRAPH.h5 --ranks 256,1024,4096

Every rank's blocks, halo plan, rounds and buffers are made from the file by the functions that make them in a job, one
rank after another, and every rank streams rows once. Nothing is trained. Columns, of the mean and of the largest rank:

  halo rows     rows received in one pass over the halo
  peers         ranks that they come from
  rounds        that the ranks agree on; "alone" is what the largest halo would take by itself
  messages      sent in a pass
  buffers       communication memory (MiB)
  plan          what the plan and the rounds hold (KiB); structure: blocks of the edges (KiB)
  ms            processor time of making a rank's blocks and plan
"""

import argparse
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
import numpy as np
import torch
from rehearsal import Rehearsal
from shared.tables import write_csv
from tabulate import tabulate
from tqdm import tqdm

from hpcgnn.__main__ import registry_choices
from hpcgnn.app.choosing_maps import map_of_one_process
from hpcgnn.config import make_config
from hpcgnn.estimate.counts.shares import Counter
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Rows, Stream
from hpcgnn.graphfile.storage import GraphFile

KIND = "halo_forward"


def main():
    """Print the table."""
    options = arguments()
    rows = []
    with GraphFile(options.graph) as file:
        config = make_config({"graph": str(options.graph), "auto_partition": True}, registry_choices())
        for ranks in options.ranks:
            rows.append(measured(file, map_of_one_process(file, config, ranks)[1], ranks, options))
            print("  ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    print(tabulate(rows, "keys", floatfmt=".4g"))
    if options.out:
        write_csv(options.out, rows)
    return 0


def measured(file, cluster_to_rank, ranks, options):
    """The row of a number of ranks."""
    row_bytes = 4 * options.width
    cap = max(1, HaloBuffers(options.halo_buffer << 20).cap(row_bytes))
    rehearsal = Rehearsal(file, cluster_to_rank, ranks, cap)
    found = []
    for rank in tqdm(range(ranks), unit="rank", leave=False, disable=not sys.stderr.isatty()):
        adjacency, seconds = rehearsal.make(rank)
        plan, buffers = adjacency.plan, HaloBuffers(options.halo_buffer << 20)
        stream = Stream(adjacency.own, adjacency.halo, plan, buffers, rehearsal.comm)
        for _ in stream(Rows(torch.zeros(int(rehearsal.ownership.counts[rank]), options.width)), KIND):
            pass
        sent = rehearsal.comm.ledger.take().get(KIND)
        found.append(
            {
                "halo rows": plan.num_halo,
                "peers": np.count_nonzero(plan.receive_counts),
                "messages": sent.messages if sent else 0,
                "buffers": buffers.nbytes / 2**20,
                "plan": plan_bytes(plan) / 2**10,
                "structure": adjacency.nbytes / 2**10,
                "ms": 1000 * seconds,
            }
        )
        rounds = len(plan.rounds)
    columns = {name: np.array([each[name] for each in found], np.float64) for name in found[0]}
    check(file, cluster_to_rank, columns, options, cap)
    row = {"ranks": ranks, "nodes": file.meta.num_nodes / ranks, "rounds": rounds}
    row["alone"] = int(-(-columns["halo rows"].max() // cap))
    for name, values in columns.items():
        row[name], row[f"{name}, largest"] = values.mean(), values.max()
    return row


def check(file, cluster_to_rank, columns, options, cap):
    """What `hpcgnn estimate` counts must be what the ranks have."""
    halo = Counter(file, cluster_to_rank, len(columns["peers"])).shares().inward
    assert (halo.received == columns["halo rows"]).all() and (halo.peers == columns["peers"]).all()


def plan_bytes(plan):
    """Bytes of a plan: its arrays and its rounds."""
    arrays = plan.receive_counts, plan.send_counts, plan.send_counts, plan.send_rows, plan.starts  # and where rows end
    segments = [each for round_ in plan.rounds for each in round_]
    lists = sum(map(sys.getsizeof, [plan.rounds, *plan.rounds]))
    return sum(each.nbytes for each in arrays) + lists + sum(sys.getsizeof(each) + 3 * 28 for each in segments)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True, metavar="FILE.h5")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[256, 1024, 4096])
    parser.add_argument("--width", type=int, default=256, help="numbers of a row, fp32")
    parser.add_argument("--halo-buffer", type=int, default=8, help="MiB")
    parser.add_argument("--out", metavar="FILE.csv")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
