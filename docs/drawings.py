#!/usr/bin/env python3
"""Draws the pictures of docs/how-it-works.md: blocks.svg, rounds.svg and memory.svg of docs/pictures/.

    python docs/drawings.py               # from the code of the package, and jobs/results/memory-in-an-epoch.csv
    python docs/drawings.py --measure     # that table again, from an epoch of hpcgnn and one of bare torch; then draws

The same bytes come out for the same figures and the same matplotlib.
"""

import csv
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
MEASURED = HERE.parent / "jobs" / "results" / "memory-in-an-epoch.csv"
NODES, WIDTH, LAYERS = 20_000, 256, 3
OFFSETS = ("#d0d0d0", "#4c78a8", "#f58518", "#54a24b")  # the own block, and ring offsets 1, 2, 3


def draw(folder=PICTURES):
    """Write all pictures into a folder."""
    for name, picture in (("blocks", _blocks), ("rounds", _rounds), ("memory", _memory)):
        figure = picture(_plots())
        figure.savefig(Path(folder) / f"{name}.svg", format="svg", metadata={"Date": None})
        _plots().close(figure)


def _plots():
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hpcgnn"
    import matplotlib.pyplot as plt

    return plt


def _blocks(plt):
    """The adjacency matrix of a graph of four communities, each a rank's, in the order of the ranks."""
    ranks, each = 4, 60
    draws = np.random.default_rng(1)
    community = np.repeat(np.arange(ranks), each)
    alike = community[:, None] == community[None, :]
    upper = np.triu(draws.random(alike.shape) < np.where(alike, 0.08, 0.006), 1)
    rows, columns = np.nonzero(upper | upper.T)
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for offset, colour in enumerate(OFFSETS):
        of = (community[rows] - community[columns]) % ranks == offset
        words = "own block" if offset == 0 else f"ring offset {offset}"
        axis.plot(columns[of], rows[of], "s", markersize=1.8, color="#707070" if offset == 0 else colour, label=words)
        for rank in range(ranks):
            corner = ((rank - offset) % ranks * each - 0.5, rank * each - 0.5)
            axis.add_patch(plt.Rectangle(corner, each, each, facecolor=colour, alpha=0.18, linewidth=0))
    for cut in range(ranks + 1):
        axis.axhline(cut * each - 0.5, color="white", linewidth=1.5)
        axis.axvline(cut * each - 0.5, color="white", linewidth=1.5)
    middle = [rank * each + each / 2 for rank in range(ranks)]
    axis.set_xticks(middle, [f"nodes of\nrank {rank}" for rank in range(ranks)])
    axis.set_yticks(middle, [f"rank {rank}" for rank in range(ranks)])
    axis.tick_params(length=0)
    axis.set(xlim=(-0.5, ranks * each - 0.5), ylim=(ranks * each - 0.5, -0.5), xlabel="source", ylabel="destination")
    axis.set_aspect("equal")
    axis.spines[:].set_visible(False)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=3)
    return figure


def _rounds(plt):
    """The example of hpcgnn/exchange/rounds.py: what three ranks receive at two ring offsets, cut by a cap of 5."""
    from hpcgnn.exchange.rounds import Sides, cut, segments

    received = {0: (4, 2), 1: (1, 3), 2: (5, 1)}
    side, offset = np.divmod(np.arange(6), 2)
    sides = Sides(side, offset + 1, np.array(list(received.values())).ravel(), len(received), len(received))
    most = [max(rows[offset] for rows in received.values()) for offset in range(2)]
    stops = cut(sides.furthest, max(map(sum, received.values())), 5, len(received))
    shades = ("#4c78a8", "#f58518", "#54a24b")
    figure, axis = plt.subplots(figsize=(7, 2.5), layout="constrained")
    starts = (0, most[0] + 1.5)
    for rank, rows in received.items():
        for offset, width in enumerate(rows):
            for row in range(width):
                parts = [(number, part) for number, each in enumerate(segments(stops, most)) for part in each]
                turn = next(
                    number for number, part in parts if part.offset == offset + 1 and part.start <= row < part.stop
                )
                place = (starts[offset] + row + 0.05, rank + 0.1)
                axis.add_patch(plt.Rectangle(place, 0.9, 0.8, facecolor=shades[turn], linewidth=0))
    for offset, start in enumerate(starts):
        axis.text(start + most[offset] / 2, -0.15, f"rows of ring offset {offset + 1}", ha="center", va="bottom")
    for turn in range(len(stops)):
        axis.add_patch(plt.Rectangle((0, 0), 0, 0, facecolor=shades[turn], label=f"round {turn + 1}"))
    axis.set_yticks([0.5, 1.5, 2.5], [f"rank {rank}\nreceives" for rank in received])
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.set(xlim=(-0.1, starts[1] + most[1] + 0.1), ylim=(3, -0.6))
    axis.spines[:].set_visible(False)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def _memory(plt):
    """What is held through an epoch, in matrices of all nodes' hidden states."""
    curves = {}
    with open(MEASURED, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            curves.setdefault(row["system"], {}).setdefault(row["phase"], []).append(int(row["bytes"]))
    matrix = NODES * WIDTH * 4
    figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for system, phases in curves.items():
        x, y = [], []
        for number, values in enumerate(phases.values()):
            x += list(number + (np.arange(len(values)) + 0.5) / len(values))
            y += [value / matrix for value in values]
        axis.step(x, y, where="post", label=system)
    axis.axvline(1, color="black", linestyle=":", linewidth=0.8)
    axis.set_xticks([0.5, 1.5], ["forward →", "backward →"])
    axis.tick_params(axis="x", length=0)
    axis.set(xlim=(0, 2), ylim=(0, None), ylabel="matrices of n rows\nand 256 columns")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper right")
    return figure


def measure(path=MEASURED):
    """Write what is held after each change in forward and backward of one epoch: the arena's bytes here, and of the
    same network in bare torch the bytes of what its operations have made and still hold.
    """
    from hpcgnn.__main__ import main, set_process_policies

    set_process_policies()
    import torch

    from hpcgnn.memory.arena import Arena
    from partition_tools.cli.main import main as tools

    with tempfile.TemporaryDirectory() as folder:
        graph = f"{folder}/graph.h5"
        size = ["--nodes", str(NODES), "--degree", "15", "--features", "64", "--classes", "40", "--seed", "1"]
        assert tools(["generate", "planted", "-o", graph, *size]) == 0
        assert tools(["partition", "add", graph, "--ranks", "1"]) == 0
        ours = _ours(Arena, main, graph, f"{folder}/run")
        theirs = _theirs(torch, graph)
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["system", "phase", "bytes"])
        for system, phases in (("hpcgnn", ours), ("torch's autograd", theirs)):
            for phase, values in zip(("forward", "backward"), phases, strict=True):
                rows.writerows([system, phase, value] for value in values)


def _ours(arena, main, graph, run):
    """(bytes after each change in the forward pass, the same in the backward pass), of the last of three epochs."""
    phases, empty, give_back, mark = [], arena.empty, arena._give_back, arena.mark

    def noted(method):
        def wrapper(self, *arguments, **options):
            result = method(self, *arguments, **options)
            if phases and phases[-1][-1:] != [self.taken]:
                phases[-1].append(self.taken)
            return result

        return wrapper

    def begin(self):
        mark(self)
        phases.append([self.taken])

    arena.empty, arena._give_back, arena.mark = noted(empty), noted(give_back), begin
    options = ["--model", "sage", "--layers", str(LAYERS), "--hidden", str(WIDTH), "--epochs", "3", "--eval-every", "0"]
    options += ["--prune", "none", "--profile-memory", "--threads", "1", "--run-dir", run]
    try:
        assert main(["train", "--graph", graph, *options]) == 0
    finally:
        arena.empty, arena._give_back, arena.mark = empty, give_back, mark
    # In the other phases of an epoch nothing is taken.
    forward, backward = [values for values in phases if len(values) > 1][-2:]
    return forward, backward


def _theirs(torch, graph):
    """The same for a network of the same layers by sparse products, with autograd."""
    import h5py
    from torch.multiprocessing.reductions import StorageWeakRef

    from hpcgnn.plugins.memory_use import Onlooker, tensors_of

    with h5py.File(graph) as file:
        pointers, sources = (torch.from_numpy(file[f"topology/{name}"][:]).long() for name in ("indptr", "indices"))
        x, y = torch.from_numpy(file["nodes/features"][:]), torch.from_numpy(file["nodes/labels"][:])
        train = torch.from_numpy(file["nodes/split"][:] == 1)
    values = (1.0 / pointers.diff().clamp(min=1)).repeat_interleave(pointers.diff())
    mean = torch.sparse_csr_tensor(pointers, sources, values, (len(x), len(x)))
    widths = [x.shape[1]] + [WIDTH] * (LAYERS - 1) + [40]
    layers = [[torch.nn.Linear(a, b), torch.nn.Linear(a, b, bias=False)] for a, b in itertools.pairwise(widths)]

    def _storages(thing):
        return [x.untyped_storage() for x in tensors_of(thing) if x.layout == torch.strided]

    class Watch(Onlooker):
        """Notes after each operation the bytes of the tensors that operations have made, as long as they last."""

        def __init__(self):
            super().__init__()
            self.seen, self.alive = [], {}

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            given = {storage._cdata for storage in _storages((args, kwargs))}
            made = {storage._cdata: storage for storage in _storages(result)}
            for key, storage in made.items():
                if key not in given:
                    self.alive[key] = StorageWeakRef(storage), storage.nbytes()
            self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}
            self.seen.append(sum(size for _, size in self.alive.values()))
            return result

    watch = Watch()
    for _ in range(2):  # gradients of parameters are there from the second epoch on
        forward, h = len(watch.seen), x
        with watch:
            for number, (own, neighbours) in enumerate(layers):
                h = torch.nn.functional.dropout(h, 0.5)
                h = own(h) + neighbours(mean @ h)
                h = torch.relu(h) if number < LAYERS - 1 else h
            loss = torch.nn.functional.cross_entropy(h[train], y[train])
            backward = len(watch.seen)
            loss.backward()
        del h, loss
    return watch.seen[forward:backward], watch.seen[backward:]


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        measure()
    draw()
