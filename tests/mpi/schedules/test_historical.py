"""Steps on shares of the clusters against a serial program that remembers: losses, histories, parameters, bytes."""

import copy
import itertools
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import oracle
import pytest
import torch
from torch.nn import functional

from hpcgnn.app.train import train
from hpcgnn.errors import ConfigError

from ..narrowing import narrowed
from ..small import stored
from ..training import build_trainer, configure, make_graphs

SHARE, SHARE_ORDER, HISTORY = 15, 16, 19  # purposes of random draws
SEED, RATE, EPOCHS = 5, 0.05, 3


def shares_of(path, steps, counted=None):
    """int64 (n,): the share of each node by its original id, and their number. counted: the nodes that count."""
    with h5py.File(path) as file:
        offsets, ids = file["clusters/offsets"][:], file["nodes/original_id"][:]
    nodes, total, share = np.diff(offsets), 0, np.full(len(offsets) - 1, -1)
    counts = np.ones(len(ids), bool) if counted is None else counted[ids]
    sizes = np.bincount(np.repeat(np.arange(len(nodes)), nodes)[counts], minlength=len(nodes))
    words = oracle.random_words(oracle.stream_key(SEED, 0, 0, SHARE), np.arange(len(sizes)), 1)[:, 0]
    for cluster in np.argsort(words, kind="stable"):
        total += sizes[cluster]
        if sizes[cluster]:
            share[cluster] = min(steps - 1, int((total - sizes[cluster] / 2) * steps / sizes.sum()))
    used, numbers = np.unique(share[share >= 0], return_inverse=True)
    share[share >= 0] = numbers
    result = np.empty(len(ids), np.int64)
    result[ids] = np.repeat(share, nodes)
    return result, len(used)


def order_of(epoch, count):
    words = oracle.random_words(oracle.stream_key(SEED, epoch, 0, SHARE_ORDER), np.arange(count), 1)[:, 0]
    return np.argsort(words, kind="stable")


def scale_of(conv, a):
    """(n, 1): factors of a layer's rows before they are summed. a: the adjacency matrix."""
    if getattr(conv, "norm", "") != "sym":
        return torch.ones(len(a), 1, dtype=a.dtype)
    degree = a.sum(0)
    return torch.where(degree > 0, degree**-0.5, 0.0)[:, None]


class Serial:
    """The method on a whole graph, by autograd on dense matrices. trainer: on one rank, for data and parameters."""

    history_dtype, now = "fp32", 0

    def __init__(self, trainer, path, steps, extra_rows=0.0, history_dtype="fp32"):
        self.history_dtype = history_dtype
        local, self.model = trainer.local, copy.deepcopy(trainer.model)
        self.keeps_input = trainer.plan.spec.keeps_input
        n = self.n = local.num_nodes
        at, self.ids = local.original_id, torch.arange(n)
        block = local.inward.own
        rows = torch.repeat_interleave(torch.arange(n), torch.diff(block.indptr))
        ones = torch.ones(len(rows), dtype=torch.float64)
        self.a = torch.zeros(n, n, dtype=torch.float64)
        weight = ones if block.weight is None else block.weight
        self.a.index_put_((at[rows], at[block.indices.long()]), weight, accumulate=True)
        self.counts = torch.zeros(n, n, dtype=torch.float64)
        self.counts.index_put_((at[rows], at[block.indices.long()]), ones, accumulate=True)
        self.x, self.labels, self.train = (
            torch.empty_like(each).index_copy_(0, at, each)
            for each in (local.features, local.labels, local.mask("train"))
        )
        self.share, self.count = shares_of(path, steps)
        self.histories = {}
        self.reach = [self.train]  # bool (n,): rows of the features and of each layer that the loss depends on
        for _ in self.model.convs:
            self.reach.insert(0, self.reach[0] | (self.counts[self.reach[0]] > 0).any(0))

        self.rows = [self.rows_of(torch.from_numpy(self.share == number), extra_rows) for number in range(self.count)]

    def rows_of(self, mine, extra_rows):
        """[int64: the rows of the features and of each layer that a share computes], times extra_rows of others."""
        last = len(self.model.convs)
        found = [mine & self.reach[last]]
        for layer in reversed(range(last)):
            rows = (mine & self.reach[layer]) | found[0]
            edges = self.counts[found[0]].sum(0).long().where(~rows, 0)
            most, chosen = extra_rows * int(rows.sum()), torch.zeros_like(rows)
            words = oracle.random_words(oracle.stream_key(SEED, 0, 1 + layer, SHARE), np.arange(self.n), 1)[:, 0]
            for count in sorted(set(edges.tolist()) - {0}, reverse=True):
                ties, left = edges == count, most - int(chosen.sum())
                if ties.sum() > left:
                    chosen |= ties & torch.from_numpy(words < left / int(ties.sum()) * 2**32)
                    break
                chosen |= ties
            found.insert(0, rows | chosen)
        return [torch.nonzero(each).squeeze(1) for each in found]

    def epoch(self, epoch):
        """The loss of an epoch."""
        self.now = epoch
        if epoch == 0:
            with torch.no_grad():
                for _, number in itertools.product(self.model.convs, range(self.count)):
                    self.forward(self.rows[number])
        total = 0.0
        for number in order_of(epoch, self.count):
            rows = self.rows[number]
            self.model.zero_grad()
            loss = self.loss(self.forward(rows), rows[-1])
            loss.backward()
            with torch.no_grad():
                for each in self.model.parameters():
                    if each.grad is not None:
                        each -= RATE * self.count * each.grad
            total += loss.item()
        return total

    def loss(self, logits, rows):
        kept, count = self.train[rows], int(self.train.sum())
        logits, labels = logits[kept], self.labels[rows][kept]
        return functional.cross_entropy(logits, labels, reduction="sum") / count

    def forward(self, rows):
        h, last = self.x[rows[0]], len(self.model.convs) - 1
        for layer, conv in enumerate(self.model.convs):
            h = self.layer(layer, conv, h, *rows[layer : layer + 2])
            if layer < last:
                h = functional.elu(h) if hasattr(conv, "att_src") else torch.relu(h)
        return h

    def used(self, layer, fresh, taken):
        """All rows: fresh ones of the share, the last ones of others."""
        if layer == 0 and self.keeps_input:
            return self.x
        known = self.histories.setdefault(layer, torch.zeros(self.n, fresh.shape[1], dtype=torch.float64))
        rounded = self.rounded(layer, fresh.detach(), taken)
        self.histories[layer] = known.index_copy(0, taken, rounded)
        return known.index_copy(0, taken, fresh + (rounded - fresh).detach())

    def rounded(self, layer, fresh, taken):
        """The rows as they are kept: gcn scales them before."""
        if self.history_dtype == "fp32":
            return fresh
        scale, number = scale_of(self.model.convs[layer], self.a)[taken], layer - self.keeps_input
        words = oracle.random_words(oracle.stream_key(SEED, self.now, number, HISTORY), taken.numpy(), fresh.shape[1])
        kept = torch.from_numpy(narrowed(self.history_dtype, (fresh * scale).numpy(), words))
        return torch.where(scale > 0, kept / scale, 0.0)

    def layer(self, layer, conv, x, taken, rows):
        """The rows `rows` of a layer from its input x, rows `taken`."""
        own = torch.searchsorted(taken, rows)
        if hasattr(conv, "att_src"):
            return self.attention(layer, conv, x, taken, rows)
        matrix = torch.from_numpy(oracle.operator(self.a.numpy(), conv.norm))[rows]
        if hasattr(conv, "eps"):
            weight = conv.first.weight
            if conv.d_out < conv.d_in:
                z = x @ weight
                inner = matrix @ self.used(layer, z, taken) + (1 + conv.eps) * z[own]
            else:
                inner = (matrix @ self.used(layer, x, taken) + (1 + conv.eps) * x[own]) @ weight
            return conv.second(torch.relu(inner + conv.first.bias))
        weight, of_own, bias = conv.weights()
        if conv.d_out < conv.d_in and not (layer == 0 and self.keeps_input):
            y = matrix @ self.used(layer, x @ weight, taken)
        else:
            y = matrix @ self.used(layer, x, taken) @ weight
        return y + bias + (0 if of_own is None else x[own] @ of_own)

    def attention(self, layer, conv, x, taken, rows):
        shape, projected = conv.shape, x @ conv.with_halves()
        f, h = shape.columns, shape.heads
        used = self.used(layer, projected[:, : f + h], taken)
        z, a_src = used[:, :f].view(self.n, h, -1), used[:, f:]
        a_dst = projected[torch.searchsorted(taken, rows), None, f + h :]
        logits = functional.leaky_relu(a_dst + a_src[None], shape.slope)  # (rows, n, h)
        weight = torch.exp(logits) * self.counts[rows][:, :, None]
        alpha = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
        y = torch.einsum("ijh,jhw->ihw", alpha, z)
        return (y.mean(1) if shape.average else y.flatten(1)) + conv.bias


class Exact(Serial):
    """Steps on shares of the training nodes, with all rows fresh."""

    def __init__(self, trainer, path, steps):
        super().__init__(trainer, path, steps)
        self.share, self.count = shares_of(path, steps, self.train.numpy())

    def epoch(self, epoch):
        total = 0.0
        for number in order_of(epoch, self.count):
            rows = torch.from_numpy(np.flatnonzero((self.share == number) & self.train.numpy()))
            self.model.zero_grad()
            loss = self.loss(self.forward([self.ids] * (len(self.model.convs) + 1))[rows], rows)
            loss.backward()
            with torch.no_grad():
                for each in self.model.parameters():
                    each -= RATE * self.count * each.grad
            total += loss.item()
        return total


MODELS = {
    "gcn": {},
    "sage": {"layers": 3},
    "gin": {"layers": 2},
    "gat": {"heads": 2, "hidden": 4},
    "gcn, kept input": {"keep_input": "always", "input_dropout": "none"},
}
CASES = [
    *[("random directed", model) for model in ("gcn", "sage", "gin", "gat")],
    ("random undirected weighted", "gcn"),
    ("random undirected", "gcn, kept input"),
    ("star", "gat"),
    ("no edges", "gcn"),
]


def compared(comm, session_path, graph, model, schedule, oracle, **more):
    """(serial, trainer) after some epochs on each of two maps, when losses and parameters were found to be the same."""
    path = stored(comm, session_path, graph)[2]
    options = {"keep_input": "never", "hidden": 6, "layers": 2, **MODELS[model], "model": model.split(",")[0]}
    narrow = "history_dtype" in more
    still = {"dropout": 0.0, "precision": "fp32" if narrow else "fp64", "optimizer": "sgd", "momentum": 0.0, "lr": RATE}
    config = configure(path, schedule=schedule, steps=3, **still, **options, **more)
    near = 2e-6 if narrow else 1e-10
    for map_name in ("dealt", "one empty"):
        alone = build_trainer(comm, config)
        if narrow:  # in float64 like the others, but for what is rounded
            alone.model.double()
            alone.local = replace(alone.local, features=alone.local.features.double())
        serial = oracle(alone, path, 3, **more)
        trainer = build_trainer(comm, config, map_name)
        for epoch in range(EPOCHS):
            assert trainer.step(epoch) == pytest.approx(serial.epoch(epoch), rel=near)
        for ours, theirs in zip(trainer.model.parameters(), serial.model.parameters(), strict=True):
            np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=0, atol=near)
        yield serial, trainer


@pytest.mark.parametrize(
    "graph, model, extra_rows", [*[(*case, 0.0) for case in CASES], *[(*CASES[at], 0.4) for at in (1, 3, 5)]]
)
def test_against_a_serial_program(comm, session_path, graph, model, extra_rows):
    for serial, trainer in compared(comm, session_path, graph, model, "historical", Serial, extra_rows=extra_rows):
        halo, local = trainer.schedule.halo, trainer.local
        ids = torch.cat([local.original_id, halo._facts.inward_ids()])
        for history, (layer, expected) in zip(halo.histories, sorted(serial.histories.items()), strict=True):
            # Own rows that some training node depends on, and remote ones with an edge to an own row of these.
            computed, made = serial.reach[layer + 1], serial.reach[layer][ids].clone()
            made[local.num_owned :] &= (serial.counts[local.original_id][computed[local.original_id]] > 0).any(0)[
                ids[local.num_owned :]
            ]
            assert not history.rows[~made].any()
            scale = scale_of(trainer.model.convs[layer], serial.a)[ids]
            np.testing.assert_allclose(history.rows[made], (expected[ids] * scale)[made], rtol=0, atol=1e-10)
        counts = comm.total(torch.tensor([len(each) for each in halo.computed]), "plan")
        assert counts.tolist() == [len(rows[-1]) for rows in serial.rows]


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@pytest.mark.parametrize("graph, model", [("random directed", "sage"), ("random undirected", "gcn"), ("star", "gin")])
def test_narrow_histories_against_a_serial_program(comm, session_path, graph, model, dtype):
    """Fresh rows are rounded where others read them, and gradients go through the rounding."""
    for serial, trainer in compared(comm, session_path, graph, model, "historical", Serial, history_dtype=dtype):
        local, halo = trainer.local, trainer.schedule.halo
        for history, (layer, expected) in zip(halo.histories, sorted(serial.histories.items()), strict=True):
            ids, rows = local.original_id, history.rows[: local.num_owned].double()
            rows = rows if history.scale is None else rows * history.scale[: local.num_owned, None]
            made, scale = serial.reach[layer][ids], scale_of(trainer.model.convs[layer], serial.a)[ids]
            np.testing.assert_allclose(rows[made], (expected[ids] * scale)[made], rtol=0, atol=2e-6)


@pytest.mark.parametrize("graph, model", CASES)
def test_batches_against_a_serial_program(comm, session_path, graph, model):
    for _ in compared(comm, session_path, graph, model, "batches", Exact):
        pass


@pytest.fixture(scope="module")
def paths(comm, session_path):
    return make_graphs(comm, session_path, nodes=300)


@pytest.fixture(scope="module")
def path(paths):
    return paths["undirected"]


def losses(trainer, epochs=4):
    return [trainer.step(epoch) for epoch in range(epochs)]


@pytest.mark.parametrize("schedule", ["historical", "batches"])
@pytest.mark.parametrize(
    "graph, options",
    [
        ("undirected", {"model": "sage"}),
        ("directed multi-label", {"model": "gat", "heads": 2, "attention_dropout": 0.2, "edge_term": "weight"}),
    ],
    ids=str,
)
def test_the_curve_depends_on_no_map(comm, paths, graph, options, schedule):
    """With dropout, for draws have no other key than nodes, epochs and layers."""
    config = configure(paths[graph], schedule=schedule, steps=5, dropout=0.5, precision="fp64", **options)
    alone = losses(build_trainer(comm, config))
    for name in ("metis", "random-clusters"):
        np.testing.assert_allclose(losses(build_trainer(comm, config, name)), alone, rtol=1e-10)


@pytest.mark.parametrize("schedule", ["historical", "batches"])
def test_one_step_is_full_batch(comm, path, schedule):
    one, full = (configure(path, dropout=0.5, **more) for more in ({"schedule": schedule, "steps": 1}, {}))
    assert losses(build_trainer(comm, one, "metis")) == losses(build_trainer(comm, full, "metis"))


def run(comm, path, run_dir, **options):
    config = configure(
        path,
        **{"run_dir": str(run_dir), "partition": "metis", "eval_every": 3, "checkpoint_every": 4, "model": "sage"},
        **{"hidden": 8, "schedule": "historical", "steps": 4, "extra_rows": 0.3, **options},
    )
    assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
    comm.barrier()


@pytest.mark.parametrize("options", [{"model": "gat"}, {"precision": "fp64"}], ids=str)
def test_narrow_histories_are_for_sums_of_float32(comm, path, options):
    with pytest.raises(ConfigError, match="history_dtype int8 is for float32 rows.*expected gcn, sage"):
        build_trainer(comm, configure(path, schedule="historical", history_dtype="int8", **options))


def test_more_steps_than_clusters_are_refused(comm, path):
    with pytest.raises(ConfigError, match="--steps 100000.*expected at most"):
        build_trainer(comm, configure(path, schedule="historical", steps=100_000))
