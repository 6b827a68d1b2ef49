"""Whether two checkouts compute the same: curves and parameters bit for bit, messages and bytes to the last one.

    python jobs/bench/same.py --before ../before                          this checkout and another one
    python jobs/bench/same.py --before ../before --ranks 1,2 --only gat   some cases on some numbers of ranks

For changes that are to change nothing. Each checkout's own package runs, in its environment (.venv, which may be a link
to the other's). All cases of a number of ranks are one MPI job: every kind of layer, schedule, precision and way of
sending rows. One graph is small and directed, with hubs, weights, types and isolated nodes. The other is undirected
with sparse entries. Compared is all of metrics.jsonl but seconds and memory, and the last checkpoint. Exit code 0:
the same; 1: not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[2]
NODES, EDGES = 400, 4000
#: Options whose default has changed since, as a checkout that does not know them has them.
OLD = {"input_dropout": "aggregate"}
COMMON = "--epochs 4 --hidden 8 --layers 3 --threads 1 --checkpoint-every 4 --intra-node messages"
#: name -> (graph, options). A small halo buffer makes many turns.
CASES = {
    "sage": ("directed", "--model sage --dropout 0.3"),
    "sage-turns": ("directed", "--model sage --dropout 0.3 --halo-buffer 0.002"),
    "sage-batch": ("undirected", "--model sage --norm batch --residual --input-dropout raw --dropout 0.2"),
    "gcn": ("undirected", "--model gcn --dropout 0.3 --keep-input never"),
    "gcn-directed": ("directed", "--model gcn --norm layer --halo-buffer 0.002"),
    "gcn-fp64": ("undirected", "--model gcn --precision fp64"),
    "gin": ("directed", "--model gin"),
    "sgc": ("undirected", "--model sgc"),
    "gat": ("undirected", "--model gat --heads 2 --dropout 0.3 --attention-dropout 0.2"),
    "gat-turns": ("directed", "--model gat --heads 2 --halo-buffer 0.004"),
    "gat-out-heads": ("undirected", "--model gat --heads 2 --out-heads 2 --norm batch"),
    "sage-shared": ("directed", "--model sage --dropout 0.3 --intra-node shared"),
    "gat-shared": ("undirected", "--model gat --heads 2 --attention-dropout 0.2 --intra-node shared"),
    "gatv2": ("directed", "--model gatv2 --heads 2 --attention-dropout 0.2 --halo-buffer 0.01"),
    "transformer": ("undirected", "--model transformer --heads 2"),
    "pna": ("undirected", "--model pna"),
    "rgcn": ("directed", "--model rgcn --bases 2 --halo-buffer 0.01"),
    "sage-bf16": ("directed", "--model sage --halo-dtype bf16"),
    "sage-int8": ("directed", "--model sage --halo-dtype int8 --halo-buffer 0.002"),
    "gat-int8": ("undirected", "--model gat --heads 2 --halo-dtype int8"),
    "gat-bf16": ("undirected", "--model gat --heads 2 --halo-dtype bf16 --halo-buffer 0.004"),
    "sage-mixed": ("undirected", "--model sage --precision mixed --halo-buffer 0.002"),
    "gcn-mixed": ("undirected", "--model gcn --precision mixed --halo-buffer 0.002"),
    "sage-whole": ("directed", "--model sage --prune none --halo-buffer 0.002"),
    "gat-whole": ("undirected", "--model gat --heads 2 --prune none"),
    "lazy-sage": ("directed", "--schedule lazy --model sage --layer-epochs 2"),
    "lazy-gat": ("undirected", "--schedule lazy --model gat --heads 2 --layer-epochs 2"),
    "lazy-rgcn": ("directed", "--schedule lazy --model rgcn --layer-epochs 2"),
    "tma": ("directed", "--schedule tma --model sage --average-steps 2 --correct-every 2"),
    "tma-gat": ("undirected", "--schedule tma --model gat --heads 2 --average-steps 2"),
    "tma-keep": ("directed", "--schedule tma --model gcn --average-steps 3"),
    "bns": ("undirected", "--schedule bns --boundary-rate 0.4 --model sage --halo-buffer 0.004"),
    "bns-gat": ("directed", "--schedule bns --boundary-rate 0.4 --model gat --heads 2"),
    "bns-bf16": ("directed", "--schedule bns --boundary-rate 0.4 --model gcn --halo-dtype bf16"),
    "stale": ("directed", "--schedule stale --stale-epochs 1 --model sage"),
    "stale-gat": ("undirected", "--schedule stale --stale-epochs 1 --model gat --heads 2 --halo-dtype int8"),
}


def write_raw_graphs(folder):
    """directed.npz and undirected.npz, the same wherever they are made."""
    rng = np.random.Generator(np.random.PCG64(1))
    target, source = (NODES * rng.random(EDGES) ** 2).astype(np.int64), rng.integers(0, NODES - 5, EDGES)
    x, labels, draw = rng.normal(size=(NODES, 24)).astype(np.float32), rng.integers(0, 5, NODES), rng.random(NODES)
    common = {"edge_index": np.stack([source, target]), "y": labels, "train_mask": draw < 0.3}
    common |= {"val_mask": (draw >= 0.3) & (draw < 0.6), "test_mask": draw >= 0.6}
    weight, kinds = rng.random(EDGES).astype(np.float32) + 0.1, rng.integers(0, 3, EDGES)
    np.savez(folder / "directed.npz", x=x, edge_weight=weight, edge_type=kinds, **common)
    few = (x * (rng.random(x.shape) < 0.1)).astype(np.float32)
    np.savez(folder / "undirected.npz", x=few, **common)


def train_cases(names, folder):
    """Train the cases one after another, on the ranks of the MPI job that this process belongs to."""
    import hpcgnn
    from hpcgnn.__main__ import build_parser, registry_choices
    from hpcgnn.app.train import train
    from hpcgnn.config import SECTION_OF, make_config

    try:
        from hpcgnn.comm.run import run
    except ImportError:  # of the package before
        from hpcgnn.comm.launch.run import run

    package = Path(hpcgnn.__file__).resolve()
    if not package.is_relative_to(os.environ["PYTHONPATH"]):
        sys.exit(f"expected the package of {os.environ['PYTHONPATH']}, got {package}")
    sys.modules["matplotlib"] = None  # pictures of the curves would take half the time
    choices = registry_choices()
    parser = build_parser(choices)

    def every_case(session):
        for name in names:
            graph, options = CASES[name]
            where = ["--graph", str(folder / f"{graph}.h5"), "--run-dir", str(folder / "runs" / name)]
            given = vars(parser.parse_args(["train", *where, *COMMON.split(), *options.split()]))
            values = {key: value for key, value in given.items() if key in SECTION_OF and value is not None}
            values = {key: value for key, value in OLD.items() if key in SECTION_OF} | values
            train(make_config(values, choices, name), session)

    return run(every_case, 1)


def prepare(checkout, folder):
    """The graph files, by the tools of a checkout."""
    python = str(checkout / ".venv" / "bin" / "python")
    add = ["add"] if (checkout / "partition_tools" / "workspace" / "settings.py").exists() else []  # later than 0.4
    write_raw_graphs(folder)
    for name, more in (("directed", []), ("undirected", ["--undirected"])):
        path = str(folder / f"{name}.h5")
        tool = [python, "-m", "partition_tools"]
        for command in (
            ["import", str(folder / f"{name}.npz"), "-o", path, *more],
            ["partition", *add, path, "--ranks", "2,3,4"],
        ):
            how = {"cwd": checkout, "env": environment(checkout)}  # python -m looks in the folder of the call first
            subprocess.run([*tool, *command], check=True, capture_output=True, **how)


def environment(checkout):
    """The variables of a process that is to import a checkout's packages, wherever its .venv was set up."""
    return os.environ | {"PYTHONPATH": str(checkout)}


def measure(checkout, ranks, names, folder):
    """Run the cases with a checkout, and return {case: its results}."""
    python = checkout / ".venv" / "bin" / "python"
    for path in folder.parent.glob("*.h5"):
        (folder / path.name).symlink_to(path)
    job = [python.with_name("mpiexec"), "-n", ranks, python, __file__]
    command = [*map(str, [*job, "--train-in", folder, "--only", ",".join(names)])]
    done = subprocess.run(command, cwd=folder, env=environment(checkout), capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"{checkout} at {ranks} ranks: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return {name: what_counts(folder / "runs" / name) for name in names}


def what_counts(run_dir):
    """{name: value} of a run that must be the same."""
    import h5py

    found = {}
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        found |= {f"epoch {record['epoch']} {key}": value for key, value in without_times(record).items()}
    for path in sorted((run_dir / "checkpoints").iterdir()):
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                file.visititems(lambda name, item, path=path: found.update(of_dataset(path.name, name, item)))
    return found


def of_dataset(file, name, item):
    """The bytes of a dataset as text, so that they can be compared and counted."""
    return {f"{file} {name}": np.asarray(item[()]).tobytes().hex()} if hasattr(item, "shape") else {}


def without_times(record):
    """A record of an epoch without times and facts of the ranks, which differ from run to run
    (`control`).
    """
    kept = {key: value for key, value in record.items() if key not in ("seconds", "cpu")}
    for key in ("bytes", "messages"):
        kept[key] = {kind: value for kind, value in kept[key].items() if not kind.startswith("control")}
    return kept


def main():
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout, set up like this one")
    parser.add_argument("--after", type=Path, default=HERE, help="default: this checkout")
    parser.add_argument("--ranks", default="1,2,3,4", help="numbers of ranks (default: 1,2,3,4)")
    parser.add_argument("--only", default=",".join(CASES), help=f"cases (default: all): {', '.join(CASES)}")
    parser.add_argument("--train-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.only.split(",")
    if options.train_in:
        return train_cases(names, options.train_in)
    if options.before is None or set(names) - set(CASES):
        parser.error("expected --before CHECKOUT" if options.before is None else f"unknown: {set(names) - set(CASES)}")
    differing = 0
    with tempfile.TemporaryDirectory(prefix="same-") as folder:
        top = Path(folder)
        prepare(options.before.resolve(), top)
        for ranks in map(int, options.ranks.split(",")):
            found = []
            for side in ("before", "after"):
                runs = top / f"{side:6}-{ranks}".replace(" ", "_")  # ranks send each other its name, as bytes
                runs.mkdir()
                found.append(measure(getattr(options, side).resolve(), ranks, names, runs))
            for name in names:
                before, after = (each[name] for each in found)
                wrong = [key for key in before | after if before.get(key) != after.get(key)]
                differing += bool(wrong)
                said = (
                    f"differs in {len(wrong)}: {', '.join(wrong[:3])}" if wrong else f"the same ({len(before)} values)"
                )
                print(f"{ranks} ranks  {name:14}  {said}", flush=True)
    print(f"{differing} differ" if differing else "all the same")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
