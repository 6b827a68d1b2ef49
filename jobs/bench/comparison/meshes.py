#!/usr/bin/env python3
"""meshgraphnet beside Dist-GNN of nekRS-ML: its losses from its initial weights, and seconds and memory of a step.

    git clone https://github.com/argonne-lcf/nekRS-ML
    python -m venv distgnn
    distgnn/bin/pip install torch==2.13.0 torch_geometric==2.8.1 mpi4py mpich hydra-core numpy matplotlib
    python jobs/bench/comparison/meshes.py curve nekRS-ML distgnn/bin/python
    python jobs/bench/comparison/meshes.py box nekRS-ML distgnn/bin/python --elements 58 --ranks 1,2,4 --steps 3

curve: its own case of 1,728 nodes on its 2 ranks, and ours on each number of ranks from the same weights. Printed is
the largest relative difference of the losses of a step. box: a cube of elements on each number of ranks with one thread
each, both systems in turn. A ratio is ours by theirs. OUT/meshes.json has all samples.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from shared.launched import parallel
from shared.limited import Group, measure
from shared.processes import clean_environment, last_words

from comparison.box import write_box
from comparison.environments import PEER_CODE, ROOT

CODE = Path("3rd_party/gnn/dist-gnn")
CASE = Path("examples/tgv_gnn_offline/ref")
CASE_RANKS = 2
FOLDED = [f"transform_{axis}=true" for axis in "xyz"]
RATE = 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["curve", "box"])
    parser.add_argument("peer", type=Path, help="a checkout of nekRS-ML")
    parser.add_argument("python", type=Path, help="the interpreter of Dist-GNN's environment")
    parser.add_argument("--out", type=Path, default=Path("runs/meshes"), help="a new folder (default: runs/meshes)")
    parser.add_argument("--ranks", default="1,2,3,4", help="default: 1,2,3,4")
    parser.add_argument("--steps", type=int, default=100, help="default: 100; its rate grows over all of them")
    parser.add_argument("--elements", type=int, default=8, help="box: elements on each edge (default: 8)")
    options = parser.parse_args()
    options.ranks = [int(part) for part in options.ranks.split(",")]
    options.peer, options.out = options.peer.resolve(), options.out.resolve()
    options.python = options.python.absolute()
    options.out.mkdir(parents=True)
    environment = clean_environment(1, PYTHONPATH=str(ROOT))
    os.environ.clear()
    os.environ.update(environment)
    samples = {"curve": curve, "box": box}[options.what](options)
    (options.out / "meshes.json").write_text(json.dumps(samples, indent=1))


def curve(options):
    """Losses from the same weights. Returns {system: its sample}."""
    folder = options.out / "case"
    shutil.copytree(options.peer / CASE, folder)
    theirs = run_peer(options, folder, CASE_RANKS, FOLDED)
    samples, graph = {f"Dist-GNN on {CASE_RANKS}": theirs}, import_folder(options, folder, folded=True)
    first, *_, last = theirs["losses"]
    print(f"Dist-GNN on {CASE_RANKS} ranks: the first loss {first:.4e}, the last {last:.4e}")
    for ranks in options.ranks:
        ours = samples[f"hpcgnn on {ranks}"] = run_ours(options, graph, ranks, theirs["weights"])
        apart = np.abs(np.array(ours["losses"]) / theirs["losses"] - 1)
        most = f"largest relative difference {apart.max():.1e} at step {apart.argmax() + 1} of {len(apart)}"
        print(f"hpcgnn on {ranks} ranks: the last {ours['losses'][-1]:.4e}; {most}", flush=True)
    return samples


def box(options):
    """Costs of a step. Returns {system: its sample}."""
    samples, graph = {}, None
    for ranks in options.ranks:
        folder = options.out / f"box-{ranks}"
        nodes, edges = write_box(folder, options.elements, ranks)
        if graph is None:
            print(f"box of {nodes:,} points and {edges:,} edges; least of {options.steps} steps")
            graph = import_folder(options, folder, folded=False)
        halos = make_halos(options, folder, ranks) if ranks > 1 else 0.0
        theirs = samples[f"Dist-GNN on {ranks}"] = run_peer(options, folder, ranks, [])
        theirs["set_up_seconds"] += halos
        ours = samples[f"hpcgnn on {ranks}"] = run_ours(options, graph, ranks, theirs["weights"])
        apart = np.abs(np.array(ours["losses"]) / theirs["losses"] - 1).max()
        print(f"{ranks} ranks; losses differ by {apart:.1e} at most")
        for name, unit, scale in (
            ("seconds", "s a step", 1),
            ("processor_seconds", "s of processors a step", 1),
            ("bytes", "GB at the peak of all processes", 1e-9),
            ("set_up_seconds", "s before the first step, with halo tables", 1),
        ):
            a, b = ours[name] * scale, theirs[name] * scale
            print(f"    {a:10.3f} beside {b:10.3f} {unit}: {a / b:.3f}", flush=True)
    return samples


def run_peer(options, folder, ranks, more):
    """The sample of Dist-GNN on the files of a folder."""
    out = options.out / f"peer-{folder.name}"
    out.mkdir()
    halos = ["halo_swap_mode=all_to_all"] if ranks > 1 else ["consistency=False", "halo_swap_mode=none"]
    command = [options.python, PEER_CODE / "distgnn_peer.py", options.peer / CODE, out]
    command += ["master_addr=localhost", "backend=gloo", "layer_norm=True", *halos, *more]
    command += [f"phase1_steps={options.steps}", f"lr_phase12={RATE}", f"lr_phase23={RATE}"]
    command += [f"gnn_outputs_path={folder}/", f"work_dir={out}", f"hydra.run.dir={out}/hydra"]
    cost = measured([options.python.with_name("mpiexec"), "-n", ranks, *command], out / "log")
    set_up, each = zip(*[json.loads((out / f"steps-{rank}.json").read_text()) for rank in range(ranks)], strict=True)
    steps = list(zip(*each, strict=True))
    return {
        "losses": [step[0]["loss"] for step in steps],
        "seconds": min(max(rank["seconds"] for rank in step) for step in steps),
        "processor_seconds": min(sum(rank["processor_seconds"] for rank in step) for step in steps),
        "bytes": cost.anonymous,
        "set_up_seconds": max(set_up),
        "weights": str(out / "initial.pt"),
    }


def make_halos(options, folder, ranks):
    """Its halo tables. Returns the seconds that it says it took."""
    log = options.out / f"halos-{ranks}.log"
    program = [options.python, options.peer / CODE / "create_halo_info_par.py", "--POLY", 1, "--PATH", folder]
    measured([options.python.with_name("mpiexec"), "-n", ranks, *program], log)
    told = [line.strip("[]") for line in log.read_text().split() if line.startswith("[") and line.endswith("]")]
    return sum(map(float, told))


def import_folder(options, folder, folded):
    """The graph file of a folder, with positions as Dist-GNN sees them: folded, in units of the longest edge."""
    imported, graph = options.out / "imported.h5", options.out / "graph.h5"
    run_tools(options, "import", folder, "-o", imported)
    maps = ["--ranks", ",".join(map(str, options.ranks)), "--clusters", 64 * max(options.ranks), "--method", "metis"]
    run_tools(options, "partition", "add", imported, *maps, "-o", graph)
    parts = [np.fromfile(file).reshape(-1, 3).astype(np.float32) for file in sorted(folder.glob("pos_node_*.bin"))]
    every = np.concatenate(parts)
    half = (every.max(0) - every.min(0)) / 2

    def seen(position):
        position = position.astype(np.float32)
        return np.abs(position % half - half / 2) if folded else position

    longest = 0.0
    for file, part in zip(sorted(folder.glob("edge_index_*_size_*.bin")), parts, strict=True):
        source, target = np.fromfile(file, np.int32).reshape(-1, 2).T
        longest = max(longest, np.linalg.norm(seen(part)[source] - seen(part)[target], axis=1).max())
    with h5py.File(graph, "r+") as file:
        file["nodes/position"][:] = seen(file["nodes/position"][:]) / longest
    return graph


def run_ours(options, graph, ranks, weights):
    """The sample of hpcgnn from given weights."""
    run_dir = options.out / f"ours-{ranks}"
    task = ["--task", "fields", "--input-fields", "u", "--target-fields", "p", "--lag", 0]
    model = ["--model", "meshgraphnet", "--layers", 4, "--hidden", 32, "--mlp-layers", 6, "--activation", "elu"]
    steps = ["--optimizer", "adamw", "--weight-decay", 0.1, "--lr", RATE, "--epochs", options.steps, "--eval-every", 0]
    plugin = ["--plugin", PEER_CODE / "distgnn_optimizer.py", "--edge-states", "encoded"]
    ours = [sys.executable, "-m", "hpcgnn", "import-weights", weights, "--graph", graph, "--run-dir", run_dir]
    measured([*ours, *task, *model, *steps, *plugin], options.out / f"import-{ranks}.log")
    command = parallel(ranks, "-m", "hpcgnn", "train", "--resume", "--run-dir", run_dir)
    cost = measured(command, options.out / f"ours-{ranks}.log")
    parts = "user_seconds", "system_seconds"
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((run_dir / "summary.json").read_text())
    return {
        "losses": [record["loss"] for record in records],
        "seconds": min(record["seconds"]["epoch"]["max"] for record in records),
        "processor_seconds": min(sum(record["cpu"][part]["sum"] for part in parts) for record in records),
        "bytes": cost.anonymous,
        "set_up_seconds": summary["seconds_loading"],
    }


def run_tools(options, *arguments):
    measured([sys.executable, "-m", "partition_tools", *arguments], options.out / "tools.log")


def measured(command, log):
    """The cost of a command; ends the program where it fails."""
    cost = measure([str(part) for part in command], Group(None), log.parent, log)
    if cost.code:
        reason = last_words(log.read_text(errors="replace"))
        sys.exit(f"{' '.join(map(str, command))}\nexit code {cost.code}: {reason}\nsee {log}")
    return cost


if __name__ == "__main__":
    main()
