#!/usr/bin/env python3
"""Where an epoch's time goes, and how near the epoch is to what the machine needs for its products and its gathers
alone.

In one run, turn by turn in every round: the epoch as it is (the clock of `hpcgnn train`: forward, backward, reduction,
step), the epoch watched, the very products of the epoch by themselves (same shapes, strides and places, in the same
order, into memory that exists), and the reading of the very rows that its gathers read (the probe of gather.py, in the
same node order). The ledger:

  GEMM         products, and ELU on their way  wait       for messages and reductions of others
  gather       rows read along edges           reduction  of gradients, without waiting
  elementwise  all else that torch computes    optimizer  clipping and the optimizer's step
  pack         rows packed, narrowed, posted   rest       Python and autograd, between operations

Page faults are part of the other lines; they are counted, and given in seconds as count x the cost of one on this
machine (of a small page, measured in every round). bound = GEMM + gather by themselves; the ratio epoch / bound is
formed within a round. With several ranks, wall seconds are the mean over ranks (the epoch's: of the slowest), processor
seconds the sum. Ranks or programs that share cores disturb wall time more than processor time. Takes twice the memory
of training.
"""

import argparse
import shlex
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout
from hpcgnn.__main__ import set_process_policies

set_process_policies()  # before torch is loaded, as the program does it

from faults import fault_seconds
from replay import Replay
from shared.trainer import make_trainer, run_benchmark
from tabulate import tabulate
from watch import PARTS, Watch

from hpcgnn.records import to_json, write_atomically

EPILOG = """examples:
  python jobs/bench/epochs/roofline.py --graph g1.h5 --model sage --threads 2
  mpiexec -n 4 python jobs/bench/epochs/roofline.py --graph g1.h5 --model gat --threads 1 --out gat-4.json
  python jobs/bench/epochs/roofline.py --graph g1.h5 --model gcn -- --matmul medium --halo-buffer 2
"""
DISCARD = 2  # first epochs: constants are computed, memory is taken


def main():
    options = arguments()

    def measured(session, config):
        return measure(session, config, options)

    return run_benchmark("roofline", measured, options.graph, options.model, options.more, options.threads)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--graph", required=True, help="graph file")
    parser.add_argument("--model", default="sage", help="three layers of width 256, gat of 4 x 64 (default: sage)")
    parser.add_argument("--threads", type=int, help="per rank (default: as hpcgnn train decides)")
    parser.add_argument("--rounds", type=int, default=5, help="each measures everything once (default: 5)")
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument("more", nargs=argparse.REMAINDER, help="-- and options of `hpcgnn train`")
    options = parser.parse_args()
    if options.more[:1] not in ([], ["--"]):
        parser.error(f"unexpected {options.more[0]!r}; options of `hpcgnn train` come after --")
    options.more = options.more[1:]
    if options.rounds < 1:
        parser.error(f"--rounds: expected at least 1, got {options.rounds}")
    return options


def measure(session, config, options):
    """Everything, on every rank; rank 0 prints and writes. Collective. Returns 0."""
    comm, watch = session.comm, Watch()
    trainer, config, about = make_trainer(config, session, watch)
    watch.install(comm)
    for epoch in range(DISCARD):
        trainer.step(epoch)
    replay = watch.recorder = Replay()
    one_epoch(trainer, watch, DISCARD, True)
    watch.recorder = None
    replay.refill()
    replay.products()
    rounds = [one_round(trainer, watch, replay, DISCARD + 1 + 2 * number) for number in range(options.rounds)]
    everyone = comm.allgather_object((rounds, replay.flop, replay.gathered_bytes))
    if comm.rank == 0:
        document = summarise(everyone, about, config, session)
        print(render(document), flush=True)
        if options.out:
            write_atomically(options.out, to_json(document, indent=1))
    return 0


def one_round(trainer, watch, replay, epoch):
    """{epoch, watched, parts, products, gathers, fault, faults}: seconds as (wall, processor), of this rank."""
    seconds, faults = one_epoch(trainer, watch, epoch, False)
    watched, _ = one_epoch(trainer, watch, epoch + 1, True)
    found = {"epoch": seconds, "faults": faults, "watched": watched, "parts": watch.take()}
    replay.refill()
    for name, function in (("products", replay.products), ("gathers", replay.gathers), ("fault", fault_seconds)):
        trainer.comm.barrier()  # all ranks do the same at the same time, as they do in an epoch
        found[name] = function()
    trainer.comm.barrier()
    return found


def one_epoch(trainer, watch, epoch, watched):
    """((wall, processor) seconds of the phases of training, minor faults in them)."""
    trainer.clock.take()
    trainer.clock.take_costs()
    watch.take()
    watch.active = watched
    trainer.step(epoch)
    watch.active = False
    seconds, costs = trainer.clock.take(), trainer.clock.take_costs()
    wall = sum(value for phase, value in seconds.items() if phase != "evaluation")
    return (wall, costs["user_seconds"] + costs["system_seconds"]), costs["minor_faults"]


def summarise(everyone, about, config, session):
    """The document: raw rounds of all ranks, and {line: {wall, processor}} of medians and extremes over rounds."""
    ranks = [rounds for rounds, _, _ in everyone]
    turns = [[rounds[number] for rounds in ranks] for number in range(len(ranks[0]))]

    def lines(pick, wall=statistics.fmean):
        pairs = [[pick(found) for found in turn] for turn in turns]
        return {
            "wall": [wall([pair[0] for pair in turn]) for turn in pairs],
            "processor": [sum(pair[1] for pair in turn) for turn in pairs],
        }

    def costs(found):
        return [(each or 0.0) * found["faults"] for each in found["fault"]]

    values = {part: lines(lambda found: found["parts"][part]) for part in PARTS}
    values["watched epoch"] = lines(lambda found: found["watched"], max)
    values["epoch"] = lines(lambda found: found["epoch"], max)
    values["of it page faults"] = lines(costs)
    values["GEMM alone"], values["gather alone"] = lines(lambda f: f["products"]), lines(lambda f: f["gathers"])
    ratio = {
        clock: [
            epoch / (products + gathers)
            for epoch, products, gathers in zip(*(values[x][clock] for x in ("epoch", "GEMM alone", "gather alone")))
        ]
        for clock in ("wall", "processor")
    }
    return {
        "command": shlex.join(sys.argv),
        **about,
        "model": config.model.model,
        "ranks": len(ranks),
        "threads_per_rank": session.threads,
        "shares_cores": session.shares_cores,
        "options": config.to_dict(),
        "gflop": sum(flop for _, flop, _ in everyone) / 1e9,
        "gathered_gb": sum(size for _, _, size in everyone) / 1e9,
        "minor_faults": spread([sum(found["faults"] for found in turn) for turn in turns]),
        "seconds": {name: {clock: spread(found) for clock, found in line.items()} for name, line in values.items()},
        "ratio": {clock: spread(found) for clock, found in ratio.items()},
        "rounds": ranks,
    }


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def render(document):
    """The ledger as text."""
    seconds, rows = document["seconds"], []
    whole = seconds["watched epoch"]
    for name in (*PARTS, "watched epoch", "epoch", "of it page faults", "GEMM alone", "gather alone"):
        line, row = seconds[name], [name]
        for clock in ("wall", "processor"):
            share = f"{100 * line[clock]['median'] / max(whole[clock]['median'], 1e-12):.0f} %"
            row += [shown(line[clock], 3), share if name in PARTS else ""]
        rows.append(row)
    rows.append(["epoch / (GEMM + gather)", shown(document["ratio"]["wall"], 2), ""])
    rows[-1] += [shown(document["ratio"]["processor"], 2), ""]
    rate = {name: seconds[name]["wall"]["median"] * document["ranks"] for name in ("GEMM alone", "gather alone")}
    per_rank = f"per rank {document['gflop'] / max(rate['GEMM alone'], 1e-12):.0f} GFLOP/s"
    return (
        f"{document['graph']}: {document['model']}, {document['nodes']:,} nodes, {document['edges']:,} edges, map "
        f"{document['map']}; {document['ranks']} x {document['threads_per_rank']} threads"
        + (", sharing cores" if document["shares_cores"] else "")
        + f"; medians over {len(document['rounds'][0])} rounds (least to most)\n\n"
        + tabulate(rows, ["", "wall s", "", "CPU s", ""], colalign=["left", *["right"] * 4], disable_numparse=True)
        + f"\n\nproducts: {document['gflop']:.1f} GFLOP, alone {per_rank}; gathers: {document['gathered_gb']:.2f} "
        "GB of rows, "
        f"alone {document['gathered_gb'] / max(rate['gather alone'], 1e-12):.1f} GB/s per rank; "
        f"{shown(document['minor_faults'], 0)} minor page faults per epoch"
    )


def shown(found, digits):
    least, middle, most = (f"{found[key]:,.{digits}f}" for key in ("min", "median", "max"))
    return middle if least == most else f"{middle} ({least} to {most})"


if __name__ == "__main__":
    sys.exit(main())
