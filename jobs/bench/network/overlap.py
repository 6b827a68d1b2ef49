#!/usr/bin/env python3
"""How much of the time that messages take is hidden behind computing, over a simulated slow link.

Linear aggregation of own rows, forwards and backwards, on the ranks it is started on, with a communicator whose
messages become available only after latency + bytes / rate of a link that carries one message at a time
(slow_link.py; the program itself knows of no delay, and the link takes no processor time). First the same
over a link without delay: what that takes, without waiting, is the computing. Then, for each factor, over a link on
which all messages of the rank that sends most take computing / factor seconds. The figure is

    hidden = 1 - (seconds waited - seconds waited without delay) / seconds that the messages took

formed within a round, over all ranks; and the same with all waiting. Ranks also wait for each other where they are
unequal or share cores with other work, which is what the first of the two leaves out. With --simulate the computing is
simulated too: one pass forwards in which every block takes its share of the seconds by its edges, asleep. That needs no
quiet machine, and shows what the order of blocks and messages is worth.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
from hpcgnn.__main__ import set_process_policies

set_process_policies()

import torch
from shared.trainer import make_trainer, run_benchmark
from slow_link import SlowLink
from tabulate import tabulate

from hpcgnn.exchange.stream import Rows
from hpcgnn.records import to_json, write_atomically

EPILOG = """examples:
  mpiexec -n 2 python jobs/bench/network/overlap.py --graph g1.h5 --threads 1
  mpiexec -n 2 python jobs/bench/network/overlap.py --graph g1.h5 --threads 1 --factors 1.25 --width 64 --halo-buffer 2
  mpiexec -n 2 python jobs/bench/network/overlap.py --graph g1.h5 --simulate 2            on any machine, however busy
  mpiexec -n 2 python jobs/bench/network/overlap.py --graph g1.h5 --simulate 2 --whole    own edges first, all of them
"""


def main():
    options = arguments()
    more = ["--halo-buffer", options.halo_buffer] + (["--partition", options.partition] * bool(options.partition))

    def measured(session, config):
        return measure(session, config, options)

    return run_benchmark("overlap", measured, options.graph, "gcn", more, options.threads)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--graph", required=True, help="graph file")
    parser.add_argument("--partition", default="", help="name of the stored map (default: the one made by default)")
    parser.add_argument("--width", type=int, default=256, help="of the rows (default: 256)")
    parser.add_argument("--halo-buffer", type=float, default=8.0, help="MiB, as of hpcgnn train (default: 8)")
    parser.add_argument("--factors", type=float, nargs="+", default=[0.5, 1, 1.25, 2, 4], metavar="X",
                        help="computing / transferring (default: 0.5 1 1.25 2 4)")  # fmt: skip
    parser.add_argument("--latency", type=float, default=0.0, help="seconds of each message (default: 0)")
    parser.add_argument("--simulate", type=float, metavar="SECONDS", help="of computing, asleep (default: compute)")
    parser.add_argument("--whole", action="store_true", help="with --simulate: own edges come first and whole")
    parser.add_argument("--rounds", type=int, default=5, help="each measures every factor once (default: 5)")
    parser.add_argument("--threads", type=int, help="per rank (default: as hpcgnn train decides)")
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    options = parser.parse_args()
    if options.whole and not options.simulate:
        parser.error("--whole needs --simulate SECONDS")
    if min(options.factors) <= 0 or options.width < 1 or options.rounds < 1:
        parser.error("--factors must be above 0, --width and --rounds at least 1")
    return options


def measure(session, config, options):
    """Everything, on every rank; rank 0 prints and writes. Collective. Returns 0, or 2 where nothing is sent."""
    link = session.comm = SlowLink(session.comm)
    trainer, _, about = make_trainer(config, session)
    rows = len(trainer.graph.ids)
    x = torch.ones(rows, options.width, requires_grad=True)
    y = trainer.schedule.halo.aggregate(x, "mean")
    y.backward(torch.ones_like(y))  # memory is there from now on
    session.comm = link._inner
    link.ledger.take()
    once(trainer, link, options)
    sent = sum(entry.bytes_sent for kind, entry in link.ledger.take().items() if kind.startswith("halo"))
    most = max(link.allgather_object(sent))
    if not most:
        if link.rank == 0:
            print(
                "overlap: error: no rows are sent; expected at least 2 ranks with edges between them", file=sys.stderr
            )
        return 2
    found = [one_round(trainer, link, options, most) for _ in range(options.rounds)]
    if link.rank == 0:
        document = {**about, "ranks": link.size, "threads_per_rank": session.threads, "width": options.width}
        document |= {"halo_buffer_mib": options.halo_buffer, "bytes_sent_by_one_rank": most, "rounds": found}
        document["how"] = options.simulate and f", computing simulated{', own edges first' * options.whole}" or ""
        print(render(document), flush=True)
        if options.out:
            write_atomically(options.out, to_json(document, indent=1))
    return 0


def one_round(trainer, link, options, most):
    """[{factor, seconds, transferring, waited, waited_without_delay, hidden, hidden_gross}], sums over ranks but for
    seconds.
    """
    link.rate, link.latency = None, 0.0
    seconds, waited, _ = totals(link, once(trainer, link, options))
    computing = options.simulate or seconds - waited / link.size
    result = []
    for factor in options.factors:
        link.rate, link.latency = most * factor / computing, options.latency
        slow, late, taken = totals(link, once(trainer, link, options))
        result.append(
            {
                **{"factor": factor, "computing": computing, "seconds": slow, "transferring": taken, "waited": late},
                **{"waited_without_delay": waited, "hidden_gross": 1 - late / taken},
                "hidden": 1 - max(0.0, late - waited) / taken,
            }
        )
    return result


def once(trainer, link, options):
    """(seconds, seconds waited, seconds that own messages took) of one aggregation and its gradient on this rank."""
    x = torch.ones(len(trainer.graph.ids), options.width, requires_grad=True)
    gradient = torch.ones_like(x)
    link.barrier()
    link.reset()
    start = time.perf_counter()
    if options.simulate:
        sleep_through(trainer.schedule.halo.inward_of(x), x.detach(), options.simulate, not options.whole)
    else:
        trainer.graph.aggregate(x, "mean").backward(gradient)
    return time.perf_counter() - start, link.waited, link.sending


def sleep_through(stream, x, seconds, pieces):
    """One pass over the blocks, each of which takes its share of the seconds."""
    edges = stream.own.num_edges + sum(block.num_edges for block in stream.halo)
    for block, _, _, _ in stream(Rows(x), "halo_forward", pieces=pieces):
        time.sleep(seconds * int(block.indptr[-1] - block.indptr[0]) / edges)


def totals(link, mine):
    """(seconds of the slowest rank, sum waited, sum taken). Collective."""
    seconds, waited, taken = zip(*link.allgather_object(mine))
    return max(seconds), sum(waited), sum(taken)


def render(document):
    rows = []
    for at, first in enumerate(document["rounds"][0]):
        turns = [found[at] for found in document["rounds"]]
        rows.append([f"{first['factor']:g}"])
        rows[-1] += [middle(turns, key, 3) for key in ("computing", "transferring", "waited_without_delay", "waited")]
        rows[-1] += [middle(turns, key, 0, 100) + " %" for key in ("hidden", "hidden_gross")]
    headers = ["computing / transferring", "computing s", "transferring s, all ranks", "waited without delay", "waited"]
    return (
        f"{document['graph']}, map {document['map']}: {document['ranks']} x {document['threads_per_rank']} threads, "
        f"rows of {document['width']} fp32 numbers, {document['halo_buffer_mib']:g} MiB for communication, "
        f"{document['bytes_sent_by_one_rank'] / 1e6:.1f} MB sent by a rank{document['how']}; medians over "
        f"{len(document['rounds'])} rounds (least to most)\n"
        "\n" + tabulate(rows, [*headers, "hidden", "of all waiting"], disable_numparse=True, colalign=["right"] * 7)
    )


def middle(turns, key, digits, unit=1):
    values = [turn[key] * unit for turn in turns]
    shown = [f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values))]
    return shown[0] if shown[1] == shown[2] else f"{shown[0]} ({shown[1]} to {shown[2]})"


if __name__ == "__main__":
    sys.exit(main())
