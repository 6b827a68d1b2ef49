"""A serial program of steps on shares that remembers, by autograd on dense matrices."""

import copy
import itertools

import h5py
import numpy as np
import oracle
import torch
from mpi.narrowing import narrowed
from torch.nn import functional

SHARE, SHARE_ORDER, HISTORY = 15, 16, 19  # purposes of random draws
SEED, RATE = 5, 0.05


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
    if conv.norm != "sym":
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
        self.histories, self.velocities = {}, [torch.zeros_like(each) for each in self.model.parameters()]
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
            self.fill()
        total = 0.0
        for number in order_of(epoch, self.count):
            self.model.zero_grad()
            loss = self.step(number)
            loss.backward()
            with torch.no_grad():
                for each, velocity in zip(self.model.parameters(), self.velocities, strict=True):
                    if each.grad is not None:
                        each -= RATE * velocity.mul_(0.9).add_(self.count * each.grad)
            total += loss.item()
        return total

    def fill(self):
        """Make the histories."""
        with torch.no_grad():
            for _, number in itertools.product(self.model.convs, range(self.count)):
                self.forward(self.rows[number])

    def step(self, number):
        """The loss of a step."""
        return self.loss(self.forward(self.rows[number]), self.rows[number][-1])

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

    def fill(self):
        """There are none."""

    def step(self, number):
        rows = torch.from_numpy(np.flatnonzero((self.share == number) & self.train.numpy()))
        return self.loss(self.forward([self.ids] * (len(self.model.convs) + 1))[rows], rows)
