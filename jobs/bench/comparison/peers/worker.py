"""One measurement of one peer: a fresh process that trains a few epochs and writes their costs as JSON.

Runs in the peer's own environment, with hpcgnn's source on the path for one reason. Memory is measured, and the
allocator is set, by the very code that does it for hpcgnn (hpcgnn/memory/resident.py). Nothing else of hpcgnn is
imported.
"""

import argparse
import importlib
import json
import resource
import time
from importlib import metadata

from hpcgnn.memory.resident import PeakMemory, resident_bytes, set_allocator_policy, trim_heap


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="module beside this one")
    parser.add_argument("--graph", required=True)
    parser.add_argument("--model", choices=["sage", "gcn", "gat"], required=True)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--result", required=True)
    return parser.parse_args()


def make_step(peer, options, prepared, graph, torch):
    """A function without arguments that trains one epoch and returns the loss."""
    torch.manual_seed(0)
    hidden = [options.hidden] * (options.layers - 1)
    convs = torch.nn.ModuleList(
        peer.convolutions(options.model, (graph.features.shape[1], *hidden, graph.classes), options.heads)
    )
    activation = torch.nn.functional.elu if options.model == "gat" else torch.relu
    optimizer = torch.optim.Adam(convs.parameters(), lr=options.lr, fused=True)
    x, labels, train = (torch.from_numpy(array) for array in (graph.features, graph.labels, graph.train))
    labels = labels[train]
    total = getattr(peer, "total", float)  # over the ranks of a peer that has several
    count = total(len(labels))

    def step():
        optimizer.zero_grad()
        h = x
        for layer, conv in enumerate(convs):
            h = torch.nn.functional.dropout(h, options.dropout) if options.dropout else h
            h = peer.convolve(conv, prepared, h)
            h = activation(h) if layer + 1 < len(convs) else h
        loss = torch.nn.functional.cross_entropy(h[train], labels, reduction="sum") / count
        loss.backward()
        if hasattr(peer, "reduce"):
            peer.reduce(convs)
        optimizer.step()
        return total(loss.detach())

    return step


def timed(step):
    """One epoch: {loss, seconds, user_seconds, system_seconds, minor_faults}; all threads of the process are
    counted.
    """
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    loss = step()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "loss": loss,
        "seconds": seconds,
        "user_seconds": after.ru_utime - before.ru_utime,
        "system_seconds": after.ru_stime - before.ru_stime,
        "minor_faults": after.ru_minflt - before.ru_minflt,
    }


def versions(packages):
    return {package: metadata.version(package) for package in packages}


def main():
    options = arguments()
    in_force = set_allocator_policy(options.threads)
    import torch  # after the allocator's policy
    from graph_file import read_graph, toy_graph

    torch.set_num_threads(options.threads)
    peer = importlib.import_module(options.peer)
    graph = read_graph(options.graph, self_loops=options.model != "sage")
    form, prepared = peer.describe(options.model), peer.prepare(graph, options.model)
    toy = toy_graph(graph.features.shape[1], graph.classes)
    make_step(peer, options, peer.prepare(toy, options.model), toy, torch)()
    trim_heap()
    peak, baseline = PeakMemory(), resident_bytes()
    may_reset = peak.reset()
    step = make_step(peer, options, prepared, graph, torch)
    epochs = [timed(step) for _ in range(options.epochs)]
    record = {
        "epochs": epochs,
        "growth_bytes": peak.read() - baseline if may_reset else None,
        "baseline_bytes": baseline,
        "format": form,
        "allocator_policy_in_force": in_force,
        "threads": torch.get_num_threads(),
        "versions": versions(peer.PACKAGES),
    }
    with open(f"{options.result}.{getattr(peer, 'RANK', 0)}", "w") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main()
