"""A peer in its own environment: trains with each rate, evaluates on the whole graph, and writes epochs as JSON.

Its clocks run in training alone: sampling, forward, backward and step. Evaluation is exact and outside of them.
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", help="pyg or dgl; with -sampled: on batches with sampled neighbours")
    parser.add_argument("--graph", required=True, help=".npz of arrays, see archives.py")
    parser.add_argument("--model", choices=["gcn", "sage", "gat"], required=True)
    for name in ("layers", "hidden", "heads", "epochs", "every", "seed", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--rates", required=True, help="learning rates, with commas between them")
    parser.add_argument("--batch", type=int, default=1024, help="of sampled systems (default: 1024)")
    parser.add_argument("--fanout", type=int, default=10, help="neighbours of each node and layer (default: 10)")
    parser.add_argument("--result", required=True)
    return parser.parse_args()


class Trained:
    """The graph, layers, and the steps of an epoch."""

    def __init__(self, options):
        peer, kind, _ = options.system.partition("-")
        self.options, self.system = options, importlib.import_module(f"{peer}_trained")
        with np.load(options.graph) as file:
            arrays = dict(file)
        arrays["y"] = arrays["y"].astype(np.int64)
        self.x, self.y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        self.masks = {name: torch.from_numpy(arrays[f"{name}_mask"]) for name in ("train", "val", "test")}
        self.graphs = [self.system.whole_graph(arrays, options.model)] * options.layers
        self.sampled = self.system.batches(arrays, options.model, options) if kind else None

    def begin(self, rate):
        """New layers and their optimizer."""
        torch.manual_seed(self.options.seed)
        given = self.options.model, self.x.shape[1], int(self.y.max()) + 1, self.options
        self.layers = self.system.layers_of(*given, whole=self.sampled is None)
        self.optimizer = torch.optim.Adam(self.layers.parameters(), rate, fused=True)

    def forward(self, h, graphs, training):
        """Logits."""
        activation = functional.elu if self.options.model == "gat" else torch.relu
        for number, (layer, graph) in enumerate(zip(self.layers, graphs, strict=True)):
            h = functional.dropout(activation(h) if number else h, self.options.dropout, training)
            h = self.system.convolve(layer, h, graph)
            h = h.flatten(1)
        return h

    def epoch(self):
        """Train one; the mean loss of its steps."""
        train, losses = self.masks["train"], []
        parts = self.sampled or [(self.x, self.graphs, None)]
        for h, graphs, labels in parts:
            self.optimizer.zero_grad()
            y = self.forward(h, graphs, True)
            y, labels = (y[train], self.y[train]) if labels is None else (y[: len(labels)], labels)
            loss = functional.cross_entropy(y, labels)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def accuracies(self):
        """{split: accuracy} on the whole graph."""
        right = (self.forward(self.x, self.graphs, False).argmax(1) == self.y).double()
        return {name: right[self.masks[name]].mean().item() for name in ("val", "test")}


def timed_epochs(trained, options):
    """[{epoch, loss, seconds, processor, and where evaluated val, test}]."""
    epochs = []
    for number in range(1, options.epochs + 1):
        before = time.perf_counter(), time.process_time()
        loss = trained.epoch()
        wall, processor = time.perf_counter() - before[0], time.process_time() - before[1]
        found = trained.accuracies() if number % options.every == 0 or number == options.epochs else {}
        epochs.append({"epoch": number, "loss": loss, "seconds": wall, "processor": processor, **found})
    return epochs


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    trained, found = Trained(options), {}
    for rate in options.rates.split(","):
        trained.begin(float(rate))
        found[rate] = timed_epochs(trained, options)
    Path(options.result).write_text(json.dumps(found))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2] / "comparison" / "peers"))
    main()
