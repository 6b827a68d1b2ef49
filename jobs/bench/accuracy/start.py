#!/usr/bin/env python3
"""How fast models learn at first: hpcgnn beside PyG's layers on the same graph, with the same options and epochs.

    python jobs/bench/accuracy/start.py cora.npz facebook.npz debian.npz --seeds 3
    python jobs/bench/accuracy/start.py debian.npz --models gcn --variant old='--input-dropout aggregate'

archives.py describes the archives of graphs.

The model is --layers layers with dropout before each, ReLU between them (ELU for gat), and Adam. The table has test
accuracy at the best validation so far, in %: mean and standard deviation over the seeds. `default` is `hpcgnn train`
with no other options. Runs that are in --out are not repeated.
"""

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[up]) for up in (1, 3)]  # shared parts, this checkout

from archives import add_shape, import_graph, read_graph
from shared.launched import parallel, quietly
from tabulate import tabulate

MODELS = ("gcn", "sage", "gat")


def train_ours(graph, model, seed, options, more, run_dir):
    """{epoch: (validation, test)} of `hpcgnn train`."""
    if not (run_dir / "summary.json").exists():
        given = ["--graph", graph, "--model", model, "--layers", options.layers, "--hidden", options.hidden]
        given += ["--dropout", options.dropout, "--lr", options.lr, "--epochs", max(options.epochs), "--seed", seed]
        given += ["--eval-every", options.every, "--run-dir", run_dir, "--resume", *more]
        if model == "gat":
            given += ["--heads", options.heads]
        quietly(parallel(options.ranks, "-m", "hpcgnn", "train", *given))
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record.get("val") is not None]
    return {record["epoch"]: (record["val"], record["test"]) for record in records}, json.loads(lines[0])["loss"]


def train_pyg(arrays, model, seed, options):
    """The same of PyG's layers, trained in this process."""
    import torch
    from peers.pyg_trained import layers_of, whole_graph
    from torch.nn import functional

    torch.manual_seed(seed)
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]).long()
    masks = [torch.from_numpy(arrays[f"{split}_mask"]) for split in ("train", "val", "test")]
    layers, edges = layers_of(model, x.shape[1], int(y.max()) + 1, options), whole_graph(arrays, model)
    optimizer = torch.optim.Adam(layers.parameters(), lr=options.lr)
    activation = functional.elu if model == "gat" else torch.relu

    def logits(training):
        h = x
        for number, layer in enumerate(layers):
            h = layer(functional.dropout(activation(h) if number else h, options.dropout, training), edges)
        return h

    found, first = {}, 0.0
    for epoch in range(1, max(options.epochs) + 1):
        optimizer.zero_grad()
        loss = functional.cross_entropy(logits(True)[masks[0]], y[masks[0]])
        loss.backward()
        optimizer.step()
        first = first or loss.item()
        if epoch % options.every == 0:
            with torch.no_grad():
                right = (logits(False).argmax(1) == y).double()
            found[epoch] = tuple(right[mask].mean().item() for mask in masks[1:])
    return found, first


def at_best(found, epochs):
    """Test accuracy at the best validation of the first `epochs` epochs."""
    return max(((*found[epoch], -epoch) for epoch in found if epoch <= epochs), key=lambda each: each[0])[1]


def run(arrays, folder, graph, model, system, more, options):
    """[(first loss, [test accuracy after each number of epochs])] of all seeds."""
    results = []
    for seed in range(options.seeds):
        path = folder / f"{model}-{system}-{seed}.json"
        if not path.exists():
            if system == "PyG":
                found, first = train_pyg(arrays, model, seed, options)
            else:
                found, first = train_ours(graph, model, seed, options, more, folder / f"{model}-{system}-{seed}")
            path.write_text(json.dumps({"first": first, "found": found}))
        saved = json.loads(path.read_text())
        found = {int(epoch): scores for epoch, scores in saved["found"].items()}
        results.append((saved["first"], [at_best(found, epochs) for epochs in options.epochs]))
    return results


def row(name, model, system, results):
    """A row of the table."""
    cells = []
    for tests in zip(*(tests for _, tests in results)):
        spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
        cells.append(f"{100 * statistics.mean(tests):.1f} ± {100 * spread:.1f}")
    return [name, model, system, f"{statistics.mean(first for first, _ in results):.2f}", *cells]


def parse():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path, metavar="NPZ", help="archives of graphs")
    parser.add_argument("--models", default=",".join(MODELS), help=f"some of {', '.join(MODELS)} (default: all)")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME='OPTIONS'", help="further options of `hpcgnn train`"
    )
    parser.add_argument("--systems", default="PyG,default", help="PyG and default, either or both (default: both)")
    parser.add_argument("--epochs", default="30,60,200", help="where accuracy is read (default: 30,60,200)")
    parser.add_argument("--every", type=int, default=5, help="epochs between evaluations (default: 5)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, 0, 1, 2, … (default: 3)")
    parser.add_argument("--ranks", type=int, default=1, help="MPI ranks of hpcgnn (default: 1)")
    add_shape(parser)
    parser.add_argument("--lr", type=float, default=0.01, help="default: 0.01")
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy-start"), help="default: runs/accuracy-start")
    options = parser.parse_args()
    options.epochs = sorted(map(int, options.epochs.split(",")))
    return options


def main():
    """Run all that is asked for, one after another, and print the table after each graph."""
    options, rows = parse(), []
    variants = [variant.partition("=")[::2] for variant in options.variant]
    systems = [(name, []) for name in options.systems.split(",") if name]
    systems += [(name, shlex.split(more)) for name, more in variants]
    for path in options.graphs:
        folder = options.out / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        arrays = read_graph(path, options.columns)
        graph = import_graph(arrays, folder, options.ranks)
        for model in options.models.split(","):
            for system, more in systems:
                rows.append(row(path.stem, model, system, run(arrays, folder, graph, model, system, more, options)))
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    headers = ["graph", "model", "system", "first loss", *(f"{epochs} epochs" for epochs in options.epochs)]
    print(tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True))


if __name__ == "__main__":
    main()
