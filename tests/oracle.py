"""The right answers: dense, serial, float64, from the papers' formulas. Imports nothing of the package.

Rows and columns are original node ids. `adjacency[v, u]` is the weight of the edge u -> v, so aggregation is
adjacency @ x.
"""

import math
from collections import Counter

import numpy as np
import torch

M64, M32 = (1 << 64) - 1, 0xFFFFFFFF
DROPOUT, DROPOUT_AGGREGATE, DROPPED_EDGE = 2, 3, 14  # purposes of random draws; part of what a seed means


# --- aggregation ----------------------------------------------------------------------------------------------------


def adjacency(n, src, dst, weight=None, self_loops="keep"):
    """Dense (n, n) float64; duplicates add up; 'add' gives each node without a self loop one of weight 1."""
    a = np.zeros((n, n))
    np.add.at(a, (dst, src), 1.0 if weight is None else weight.astype(np.float64))
    if self_loops == "add":
        missing = np.setdiff1d(np.arange(n), src[src == dst])
        a[missing, missing] += 1.0
    return a


def operator(a, norm):
    """The dense matrix of an aggregation: sum A, mean D_in^-1 A, sym D_in^-1/2 A D_out^-1/2.

    A degree of 0 scales by 0. So does a degree of at most 2^-23 of the sum of absolute weights, since it is the
    rounding of that sum's float32. (Edges of one pair of nodes should not cancel here: the matrix has their sum alone.)
    """

    def power(degree, exponent):
        axis = 1 if degree is into else 0
        there = np.abs(degree) > 2.0**-23 * np.abs(a).sum(axis)
        result = np.zeros_like(degree)
        result[there] = degree[there] ** exponent
        assert np.isfinite(result).all(), "there is no root of a degree below 0"
        return result

    into, out = a.sum(1), a.sum(0)

    if norm == "sum":
        return a
    if norm == "mean":
        return power(into, -1.0)[:, None] * a
    return power(into, -0.5)[:, None] * a * power(out, -0.5)[None, :]


# --- traffic --------------------------------------------------------------------------------------------------------


def halo_rows(src, dst, owner, size):
    """rows[p][k - 1]: the number of distinct nodes of rank p - k with an edge into rank p."""
    rows = [[0] * (size - 1) for _ in range(size)]
    for p in range(size):
        into = owner[dst] == p
        for k in range(1, size):
            rows[p][k - 1] = len(np.unique(src[into & (owner[src] == (p - k) % size)]))
    return rows


def messages(rows, fine_cap, cap, back=False):
    """Messages that each rank sends in one aggregation; back: that it receives, as many as it sends back.

    rows: from `halo_rows`. fine_cap: rows of a round, cut for the widest rows of the run; cap: rows that fit for this
    width. Rows are dealt one by one to rounds, then whole rounds to groups; a peer gets one message per group.
    """
    size = len(rows)
    round_of, sizes = _even_rounds(rows, fine_cap)
    group_of, used = [0] * len(sizes), 0
    for number, length in enumerate(sizes):
        new = number > 0 and used + length > cap
        group_of[number] = (group_of[number - 1] if number else 0) + new
        used = length if new else used + length

    def sent_by(p):
        counts = [rows[p if back else (p + k + 1) % size][k] for k in range(size - 1)]
        return len({(k, group_of[round_of[k, row]]) for k in range(size - 1) for row in range(counts[k])})

    return [sent_by(p) for p in range(size)]


def _even_rounds(rows, cap):
    """The fewest rounds of at most `cap` rows, with three attempts at as many of fewer rows."""
    size = len(rows)
    received = [sum(each) for each in rows]
    sent = [sum(rows[(p + k + 1) % size][k] for k in range(size - 1)) for p in range(size)]
    found, high = _dealt_rounds(rows, cap), cap
    least = math.ceil(max(received + sent, default=0) / max(1, len(found[1])))
    for attempt in range(3 if len(found[1]) > 1 else 0):
        middle = least if attempt == 0 else (least + high) // 2
        if middle >= high:
            break
        tried = _dealt_rounds(rows, middle)
        if len(tried[1]) == len(found[1]):
            found, high = tried, middle
        else:
            least = middle + 1
    return found


def _dealt_rounds(rows, cap):
    """({(ring offset - 1, row): round}, rows of each round on the rank that receives or sends most).

    A new round starts where some rank would have more than `cap` rows.
    """
    size, round_of, sizes, filled = len(rows), {}, [], None
    for k in range(size - 1):
        for row in range(max(each[k] for each in rows)):
            receivers = [p for p in range(size) if rows[p][k] > row]
            sides = [("in", p) for p in receivers] + [("out", (p - k - 1) % size) for p in receivers]
            if filled is None or any(filled[side] == cap for side in sides):
                sizes.append(0)
                filled = Counter()
            filled.update(sides)
            sizes[-1] = max(filled.values())
            round_of[k, row] = len(sizes) - 1
    return round_of, sizes


# --- random numbers -------------------------------------------------------------------------------------------------


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC'11) of uint32 counters (…, 4) under a key of two words."""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    mask, shift = np.uint64(M32), np.uint64(32)
    for _ in range(10):
        high = [(c[0] * np.uint64(0xD2511F53)) >> shift, (c[2] * np.uint64(0xCD9E8D57)) >> shift]
        low = [(c[0] * np.uint64(0xD2511F53)) & mask, (c[2] * np.uint64(0xCD9E8D57)) & mask]
        c = [high[1] ^ c[1] ^ k0, low[1], high[0] ^ c[3] ^ k1, low[0]]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return np.stack(c, -1).astype(np.uint32)


def stream_key(*parts):
    """64 bits from integers by SplitMix64's finaliser."""

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return z ^ (z >> 31)

    key = 0
    for part in parts:
        key = mix((key + 0x9E3779B97F4A7C15 + mix(part & M64)) & M64)
    return key


def random_words(key, ids, columns):
    """uint32 (len(ids), columns): word c % 4 of the counter (c // 4, low id, high id, 0)."""
    groups = -(-columns // 4)
    counter = np.zeros((len(ids), groups, 4), np.uint32)
    counter[..., 0] = np.arange(groups)
    counter[..., 1] = (ids & M32)[:, None]
    counter[..., 2] = (ids >> 32)[:, None]
    return philox(counter, (key & M32, key >> 32)).reshape(len(ids), 4 * groups)[:, :columns]


def dropout_mask(seed, epoch, layer, purpose, n, columns, p):
    """(n, columns) float64 factors, 0 or 1/(1-p), for nodes 0 … n-1."""
    if p == 0:
        return torch.ones(n, columns, dtype=torch.float64)
    words = random_words(stream_key(seed, epoch, layer, purpose), np.arange(n, dtype=np.int64), columns)
    return torch.from_numpy((words >= round(p * 2**32)) / (1 - round(p * 2**32) / 2**32))


def kept_edges(key, row_ids, column_ids, ends, p):
    """bool (E,): which edges of rows to columns (original ids, int64) edge dropout keeps. Equal edges differ by their
    order; ends: whether the rows are the edges' sources, destinations or either.
    """
    dst, src = (column_ids, row_ids) if ends == "rows_are_sources" else (row_ids, column_ids)
    if ends == "rows_are_either":
        dst, src = np.maximum(row_ids, column_ids), np.minimum(row_ids, column_ids)
    seen, counter = Counter(), np.zeros((len(dst), 4), np.uint32)
    counter[:, 0], counter[:, 1] = dst & M32, src & M32
    counter[:, 2] = dst >> 32 & 0xFFFF | (src >> 32 & 0xFFFF) << 16
    for e, pair in enumerate(zip(row_ids.tolist(), column_ids.tolist())):
        counter[e, 3], seen[pair] = seen[pair], seen[pair] + 1
    words = philox(counter, (key & M32, key >> 32))[:, 0]
    return (words >= round(p * 2**32)) | (dst == src)


# --- models ---------------------------------------------------------------------------------------------------------


def _normalise(kind, x, weight, bias):
    if kind == "none":
        return x
    axis = 0 if kind == "batch" else 1
    mean = x.mean(axis, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(axis, keepdim=True) + 1e-5) * weight + bias


def of_a_mean(aggregate, dropped, edges):
    """Dropout of an aggregate (n, F) with the deviation of a mean of d rows, d the in-edges (n,) or 1. This is one
    row's deviation over √d.
    """
    share = torch.from_numpy(1 / np.sqrt(np.maximum(edges, 1)))[:, None]
    return (1 - share) * aggregate + share * dropped


def model(
    a,
    x,
    parameters,
    *,
    kind,
    layers,
    dropout=0.0,
    input_dropout=None,
    kept=False,
    scaled=False,
    norm="none",
    residual=False,
    edges=None,
    seed=0,
    epoch=0,
):
    """Logits (n, C) by the formulas of the papers.

    a: (n, n) adjacency with the self loops that the model wants. x: (n, F). parameters: {name: float64 tensor}. edges:
    (n,), the number of in-edges of each node, those loops among them.

    kept: whether the first layer's dropout acts on the aggregate. input_dropout: the rate there (None: dropout).

    scaled: with the noise of a mean of as many rows as there are in-edges, d. Each element is x (1 - 1/√d) + dropout(x)
    / √d.
    """
    n, p_in = len(a), dropout if input_dropout is None else input_dropout
    matrix = torch.from_numpy(operator(a, {"gcn": "sym", "sgc": "sym", "sage": "mean", "gin": "sum"}[kind]))

    def mask(layer, purpose, like, p):
        return like * dropout_mask(seed, epoch, layer, purpose, n, like.shape[1], p)

    def convolution(layer, aggregated, own):
        def get(name):
            return parameters[f"convs.{layer}.{name}"]

        def last_bias(name):  # there is none before a batch norm
            return 0 if norm == "batch" and layer + 1 < (1 if kind == "sgc" else layers) else get(name)

        if kind in ("gcn", "sgc"):
            return aggregated @ get("linear.weight") + last_bias("linear.bias")
        if kind == "sage":
            return aggregated @ get("neighbour.weight") + own @ get("own.weight") + last_bias("own.bias")
        hidden = torch.relu((aggregated + (1 + get("eps")) * own) @ get("first.weight") + get("first.bias"))
        return hidden @ get("second.weight") + last_bias("second.bias")

    first = torch.linalg.matrix_power(matrix, layers) if kind == "sgc" else matrix
    own = mask(0, DROPOUT, x, p_in)
    aggregate = first @ own
    if kept:
        aggregate = first @ x
        dropped = mask(0, DROPOUT_AGGREGATE, aggregate, p_in)
        aggregate = of_a_mean(aggregate, dropped, edges) if scaled else dropped
    h = convolution(0, aggregate, own)
    before = None
    for layer in range(1, 1 if kind == "sgc" else layers):
        h = torch.relu(
            _normalise(norm, h, parameters.get(f"norms.{layer - 1}.weight"), parameters.get(f"norms.{layer - 1}.bias"))
        )
        if residual and before is not None:
            h = h + before
        before = h
        h = mask(layer, DROPOUT, h, dropout)
        h = convolution(layer, matrix @ h, h)
    return h


def loss(logits, labels, train):
    """The mean cross-entropy over the training nodes (bool (n,)), or binary cross-entropy over nodes and labels."""
    logits, labels = logits[train], labels[train]
    if labels.ndim == 2:
        labels = labels.to(logits.dtype)
        return (torch.clamp(logits, min=0) - logits * labels + torch.log1p(torch.exp(-logits.abs()))).mean()
    return (torch.logsumexp(logits, 1) - logits[torch.arange(len(labels)), labels]).mean()


# --- metrics --------------------------------------------------------------------------------------------------------


def accuracy(logits, labels):
    """The share of rows whose largest logit is the label; the first one of equal ones counts."""
    return float(np.mean([int(np.flatnonzero(row == row.max())[0]) == label for row, label in zip(logits, labels)]))


def micro_f1(logits, labels):
    """2 TP / (2 TP + FP + FN), counted one by one."""
    tp = fp = fn = 0
    for score, truth in zip(logits.reshape(-1), labels.reshape(-1)):
        tp += score > 0 and truth == 1
        fp += score > 0 and truth == 0
        fn += score <= 0 and truth == 1
    return 2 * tp / (2 * tp + fp + fn)


def roc_auc(logits, labels):
    """The mean over labels of the share of positive-negative pairs in the right order, ties half; one-sided labels
    are left out.
    """
    areas = []
    for column in range(labels.shape[1]):
        positive, negative = logits[labels[:, column] == 1, column], logits[labels[:, column] == 0, column]
        if len(positive) and len(negative):
            above = (positive[:, None] > negative[None, :]).sum() + 0.5 * (positive[:, None] == negative[None, :]).sum()
            areas.append(above / (len(positive) * len(negative)))
    return float(np.mean(areas)) if areas else float("nan")


def by_class(predicted, labels, number):
    """(precision, recall, F1), each (C,), counted class by class; NaN for 0 / 0."""
    with np.errstate(invalid="ignore"):
        right, chosen, wanted = (
            np.array([np.sum(both) for both in each], float)
            for each in zip(*(((predicted == k) & (labels == k), predicted == k, labels == k) for k in range(number)))
        )
        return right / chosen, right / wanted, 2 * right / (chosen + wanted)


# --- training layer by layer ------------------------------------------------------------------------------------------


def train_layer_by_layer(a, x, labels, train, val, parameters, *, kind, epochs, lr, dropout, seed, edges=None):
    """[loss of every epoch] of Retexo's recipe (Kolluri et al., 2023): each layer with a head, Adam, its best epoch
    kept.

    a: (n, n) adjacency with the self loops that the model wants; train, val: bool (n,).

    parameters: {name: float64 tensor} at the start, changed in place; epochs: a value for each layer; kind: 'gcn' or
    'sage'.

    edges: (n,), the in-edges by which the noise of aggregates is scaled, or None.
    """
    n, losses, layers = len(a), [], len(epochs)
    matrix = torch.from_numpy(operator(a, {"gcn": "sym", "sage": "mean"}[kind]))
    for layer in range(layers):
        parts = [f"convs.{layer}.", f"heads.{layer}."]
        names = [name for name in parameters if name.startswith(tuple(parts))]
        for name in names:
            parameters[name].requires_grad_()
        optimizer = torch.optim.Adam([parameters[name] for name in names], lr=lr)
        aggregate, last = matrix @ x, layer == layers - 1

        def hidden(p, epoch):
            def mask(like, purpose):
                return like * dropout_mask(seed, epoch, layer, purpose, n, like.shape[1], p) if p else like

            dropped = mask(aggregate, DROPOUT_AGGREGATE)
            dropped = dropped if edges is None else of_a_mean(aggregate, dropped, edges)
            y = dropped @ parameters[f"convs.{layer}.{NEIGHBOUR[kind]}.weight"]
            if kind == "sage":
                y = y + mask(x, DROPOUT) @ parameters[f"convs.{layer}.own.weight"]
            y = y + parameters[f"convs.{layer}.{'own' if kind == 'sage' else NEIGHBOUR[kind]}.bias"]
            return y if last else torch.relu(y)

        def logits(p, epoch):
            h = hidden(p, epoch)
            if last:
                return h
            h = h * dropout_mask(seed, epoch, layer + 1, DROPOUT, n, h.shape[1], p) if p else h
            return h @ parameters[f"heads.{layer}.weight"] + parameters[f"heads.{layer}.bias"]

        best, kept = -1.0, None
        for _ in range(epochs[layer]):
            optimizer.zero_grad()
            value = loss(logits(dropout, len(losses)), labels, train)
            value.backward()
            optimizer.step()
            losses.append(value.item())
            with torch.no_grad():
                found = accuracy(logits(0.0, 0)[val].numpy(), labels[val].numpy())
            if found > best:
                best, kept = found, {name: parameters[name].detach().clone() for name in names}
        with torch.no_grad():
            for name in names if not last else ():
                parameters[name].copy_(kept[name])
            x = hidden(0.0, 0)
    return losses


NEIGHBOUR = {"gcn": "linear", "sage": "neighbour"}


# --- averaging --------------------------------------------------------------------------------------------------------


def train_by_averaging(
    a, x, labels, train, owner, parameters, *, kind, layers, rounds, every, lr, dropout, seed, correct
):
    """[loss of every round], and the parameters at the end: RandomTMA (Zhu et al., 2023) on dense matrices, with Adam.

    a: (n, n) adjacency with the self loops that the model wants; owner: (n,) ranks.

    every: steps of a rank in a round; correct: an exact step after this many rounds, or 0.
    """
    inside, losses, parts = a * (owner[:, None] == owner[None, :]), [], {}
    settings = {"kind": kind, "layers": layers, "dropout": dropout, "kept": True, "seed": seed}
    ranks = [r for r in range(int(owner.max()) + 1) if (train.numpy() & (owner == r)).any()]
    counts = [int((train.numpy() & (owner == r)).sum()) for r in ranks]

    def start(values):
        own = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        return own, torch.optim.Adam(own.values(), lr=lr)

    def step(own, optimizer, matrix, nodes, epoch):
        optimizer.zero_grad()
        value = loss(model(matrix, x, own, epoch=epoch, **settings), labels, nodes)
        value.backward()
        optimizer.step()
        return value.item()

    def mean(tensors):
        return sum(tensor.detach() for tensor in tensors) / len(ranks)

    exact = start(parameters)
    parts = {rank: start(parameters) for rank in ranks}
    for index in range(rounds):
        for number in range(every):
            found = [
                step(*parts[rank], inside, train & torch.from_numpy(owner == rank), index | number << 32)
                for rank in ranks
            ]
        losses.append(sum(count * value for count, value in zip(counts, found)) / sum(counts))
        with torch.no_grad():
            for name in parameters:
                common = mean([parts[rank][0][name] for rank in ranks])
                for rank in ranks:
                    parts[rank][0][name].copy_(common)
                exact[0][name].copy_(common)
        if correct and (index + 1) % correct == 0:
            losses[-1] = step(*exact, a, train, index | (1 << 30) << 32)
            with torch.no_grad():
                for rank in ranks:
                    for name in parameters:
                        parts[rank][0][name].copy_(exact[0][name])
    return losses, {name: value.detach() for name, value in exact[0].items()}
