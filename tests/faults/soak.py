"""Hundreds of random faults, for hours if need be: what was tried, and what happened.

    python tests/faults/soak.py --injections 200 --seed 1 --out soak.jsonl
    python tests/faults/soak.py --table soak.jsonl ...

Jobs follow each other in one run directory, each resuming what the one before left for some more epochs, each with a
fault of its own, at a passage that it comes to; after some of them one without a fault must finish, with the losses, to
the last digit, of a run that nothing ever happened to.
Exit code 1 if anything hung, claimed success, left a checkpoint that cannot be used, or changed the curve.
"""

import argparse
import functools
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pandas

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))
import harness  # noqa: E402
from harness import Injection  # noqa: E402
from inject import FAULTS, RANK_0_ONLY, STAGES  # noqa: E402

from hpcgnn.engine.checkpoint import checkpoints  # noqa: E402
from partition_tools.cli.generate_graph import generate_graph  # noqa: E402
from partition_tools.cli.partition_graph import partition_graph  # noqa: E402
from partition_tools.generators.spec import Spec  # noqa: E402

CHAIN, EPOCHS = 8, 4
# A stage that many passages lead through may be met at any of them; so many there are in EPOCHS epochs at least.
MOST_TIMES = {"forward": 7, "backward": 3, "reduction": 4, "step": 4, "evaluation": 4, "checkpoint": 6, "meeting": 60}


def draw(generator, ranks, between_nodes=False):
    """A random Injection for a job of so many ranks. between_nodes: ranks of a node share memory and meet."""
    stages = [stage for stage in STAGES if stage != "meeting" or between_nodes]
    stage, fault = generator.choice(stages), generator.choice(list(FAULTS))
    rank = 0 if stage in RANK_0_ONLY or fault == "disk" else generator.randrange(ranks)
    return Injection(stage, fault, rank, ranks, generator.randint(1, MOST_TIMES.get(stage, 1)))


def soak(injections, seed, out, rank_counts, folder, server, per_node=None):
    """Try so many; append a JSON line for each to `out`. Returns the number of complaints. per_node: ranks of a node
    that read each other's rows in place; None: all send messages.
    """
    shared = () if per_node is None else ("--intra-node", "shared", "--halo-buffer", "0.02")
    start = functools.partial(harness.start, per_node=per_node)
    generator, graph, complaints, done = random.Random(seed), folder / "graph.h5", 0, 0
    generate_graph("planted", graph, Spec(nodes=600, degree=6, features=16, classes=4, seed=3))
    partition_graph(graph, sorted(set(rank_counts)), num_clusters=64)
    references = {}
    while done < injections:
        ranks = generator.choice(rank_counts)
        clean, run_dir = Injection("import", "none", 0, ranks), folder / "run"
        if ranks not in references:
            most = ("--epochs", EPOCHS * (CHAIN + 1))
            outcome = start(clean, graph, folder / f"clean-{ranks}", server, *most, *shared)
            assert outcome.code == 0, outcome.text
            references[ranks] = harness.losses(folder / f"clean-{ranks}")
        shutil.rmtree(run_dir, ignore_errors=True)
        for _ in range(min(CHAIN, injections - done)):
            injection = draw(generator, ranks, per_node is not None)
            pause = generator.choice((1, 3, 6))
            outcome = start(injection, graph, run_dir, server, *more(run_dir), *shared, stop_seconds=pause)
            wrong = harness.complaint(injection, outcome, run_dir)
            done, complaints = done + 1, complaints + bool(wrong)
            record(out, done, injection, outcome, wrong)
        outcome = start(clean, graph, run_dir, server, *more(run_dir), *shared)
        wrong = "" if outcome.code == 0 else f"cannot be resumed: code {outcome.code}"
        if not wrong and harness.losses(run_dir) != references[ranks][: done_epochs(run_dir)]:
            wrong = "another curve than without faults"
        complaints += bool(wrong)
        record(out, done, clean, outcome, wrong)
    return complaints


def done_epochs(run_dir):
    """How far the checkpoints of a run go."""
    return max((int(path.stem.removeprefix("epoch-")) for path in checkpoints(run_dir)), default=0)


def more(run_dir):
    """Options for so many epochs more. The result of those before goes, or a job that leaves none seems to have one."""
    (run_dir / "summary.json").unlink(missing_ok=True)
    return "--epochs", done_epochs(run_dir) + EPOCHS


def record(out, number, injection, outcome, wrong):
    """Append what happened; show it."""
    line = {**vars(injection), "code": outcome.code, "seconds": round(outcome.seconds, 1)}
    line |= {"happened": outcome.happened, "wrong": wrong}
    if wrong:
        line["text"] = outcome.text[-4000:]
    with open(out, "a") as file:
        file.write(json.dumps(line) + "\n")
    said = "not reached" if not outcome.happened and injection.fault != "none" else f"code {outcome.code}"
    print(f"{number:4d} {injection}: {said}, {outcome.seconds:.1f} s {'WRONG: ' + wrong if wrong else ''}", flush=True)


def table(*paths):
    """Markdown: how many faults of each kind happened at each stage, and how jobs ended."""
    lines = pandas.concat([pandas.read_json(path, lines=True) for path in paths])
    met = lines[lines["happened"]]
    counts = pandas.crosstab(met["fault"], met["stage"], margins=True, margins_name="all")
    ends = met.groupby("fault").agg(
        codes=("code", lambda codes: codes.value_counts().to_dict()),
        longest=("seconds", "max"),
        complaints=("wrong", lambda wrong: wrong.ne("").sum()),
    )
    whole = lines[lines["fault"] == "none"]
    return (
        f"{counts.join(ends).to_markdown()}\n\n{len(whole)} chains finished without fault, "
        f"{whole['wrong'].ne('').sum()} of them wrong; {lines['code'].isna().sum()} jobs hung."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--injections", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", default="2,3,4,5,8", help="numbers of ranks to draw from (default 2,3,4,5,8)")
    parser.add_argument("--per-node", type=int, metavar="N", help="--intra-node shared on nodes of N ranks")
    parser.add_argument("--out", default="soak.jsonl")
    parser.add_argument("--table", metavar="FILE", nargs="+", help="only show the table of earlier runs")
    options = parser.parse_args()
    if options.table:
        print(table(*options.table))
        return 0
    with tempfile.TemporaryDirectory(prefix="hpcgnn-soak-") as folder, harness.nursery() as server:
        counts = [int(part) for part in options.ranks.split(",")]
        complaints = soak(options.injections, options.seed, options.out, counts, Path(folder), server, options.per_node)
    print(table(options.out))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
