"""What estimates are made of: the communicator without others, the amounts of operations, counted halos, assumed
shares.
"""

import contextlib
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcgnn import kernels
from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.counts.assumed import assumed_shares
from hpcgnn.estimate.counts.halo_counts import HaloCounts
from hpcgnn.estimate.counts.shares import locality_of
from hpcgnn.estimate.counts.traffic import halo_traffic
from hpcgnn.estimate.trial.operations import Operation, of_kernel, of_torch
from hpcgnn.estimate.trial.simulated_comm import GhostCommunicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.narrow import NARROW
from hpcgnn.exchange.rounds import coalesce, merge
from hpcgnn.exchange.stream import Use
from hpcgnn.exchange.wire import Form
from hpcgnn.graph.sparse_rows import sparse_rows
from hpcgnn.ops.sparse import sparse_product


def test_a_ghost_counts_what_is_sent():
    comm, arrived = GhostCommunicator(3), torch.full((6,), -1.0)
    comm.exchange([(1, torch.arange(4.0)), (2, torch.ones(2))], [(2, arrived)], "halo_forward").finish()
    assert arrived.tolist() == [0, 1, 2, 3, 0, 1], "what this rank sends as far in the other direction"
    comm.allreduce_(torch.ones(5), "allreduce")
    comm.allreduce_(torch.ones(0), "allreduce")
    comm.exchange([], [], "nothing").finish()
    found = {kind: (each.messages, each.bytes_sent, each.bytes_received) for kind, each in comm.ledger.take().items()}
    assert found == {"halo_forward": (2, 24, 24), "allreduce": (1, 20, 20)}


def test_a_ghost_does_not_tear_messages():
    """Parts of narrowed rows would be taken for each other: bytes of int8 for floats that are no numbers."""
    comm, longer, alike = GhostCommunicator(2), torch.full((10,), 9, dtype=torch.uint8), torch.zeros(4)
    comm.exchange([(1, torch.full((7,), 255, dtype=torch.uint8))], [(1, longer)], "halo_forward").finish()
    assert not longer.any()
    comm.exchange([(1, torch.arange(4.0))], [(1, alike)], "halo_forward").finish()
    assert alike.tolist() == [0, 1, 2, 3]


def told_by_kernels(call):
    """[(Operation, amounts)] of the kernels that a call uses."""
    found = []

    class Watch:
        def __init__(self, name, arguments):
            found.append(of_kernel(name, arguments))

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    with kernels.watched(Watch):
        call()
    return found


def dropped(out, x):
    kernels.dropout(out, x, torch.arange(len(x)), 1, 0.5)


MANY = torch.ones(8192, 64)
INDPTR, INDICES = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 3, 1, 1, 2], dtype=torch.int32)
X = torch.ones(4, 6)
KERNELS = {
    "gather": (lambda: kernels.gather(torch.zeros(3, 6), X, INDPTR, INDICES), ("gather", "fp32", 6), (3, 5)),
    "gather of doubles": (
        lambda: kernels.gather(torch.zeros(3, 6).double(), X.double(), INDPTR, INDICES),
        ("gather", "fp64", 6),
        (3, 5),
    ),
    "pack": (lambda: kernels.pack(torch.zeros(5, 6), X, INDICES), ("pack", "fp32", 6), (5, 0)),
    "few numbers": (lambda: dropped(torch.zeros(8, 64), torch.ones(8, 64)), ("dropout", "fp32"), (512, 0)),
    "some rows": (
        lambda: kernels.dropout(torch.zeros(2, 6), X, torch.arange(2), 1, 0.5, index=INDICES[:2]),
        ("dropout", "fp32"),
        (12, 0),
    ),
    "in place": (lambda: dropped(MANY, MANY), ("dropout", "fp32"), (8192 * 64, 0)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_amounts_of_kernels(name):
    call, operation, amounts = KERNELS[name]
    assert (Operation(*operation), amounts) in told_by_kernels(call)


def test_gathers_along_sparse_features_have_names_of_their_own():
    """What they read at random is weights, or gradients, and not in the order of the graph's edges."""
    features = sparse_rows(INDPTR.numpy(), INDICES.numpy(), np.ones(5, np.float32), 4, torch.float32)
    found = []

    @contextlib.contextmanager
    def watch(name, arguments):
        found.append(of_kernel(name, arguments, features))
        yield

    weight = torch.ones(4, 6, requires_grad=True)
    with kernels.watched(watch):
        sparse_product(features, weight, torch.arange(3)).sum().backward()
        kernels.gather(torch.zeros(3, 6), X, INDPTR.clone(), INDICES)
    assert found == [
        (Operation("gather_entries", "fp32", 6), (3, 5)),
        (Operation("gather_columns", "fp32", 6), (4, 5)),
        (Operation("gather", "fp32", 6), (3, 5)),
    ]


def test_locality_of_reads():
    """As many rows as a stretch has reads, where none is read twice; and one, where all reads are of one."""
    rows, shares = locality_of(np.arange(1024))
    assert rows.tolist() == [1, 256, 512, 1024] and shares.tolist() == [1, 1, 1, 1]
    rows, shares = locality_of(np.zeros(1024, np.int64))
    assert rows.tolist() == [1, 1, 1, 1] and shares.tolist() == [1, 1 / 1024, 1 / 1024, 1 / 1024]
    for few in (0, 1, 2, 128):
        assert [each.tolist() for each in locality_of(np.arange(few))] == [[1], [1]]
    assert locality_of(np.arange(129))[0].tolist() == [1, 129]


@pytest.mark.parametrize("skew", [0.0, 1.2])
def test_locality_is_that_of_a_cache(skew):
    """The share of reads that miss in a cache of the last r different rows, counted read by read."""
    weights = np.arange(1, 2001) ** -skew
    reads = np.random.default_rng(1).choice(2000, 20_000, p=weights / weights.sum())
    for size, share in zip(*locality_of(reads)):
        if not 100 < size < 1500:
            continue
        cache, missed = OrderedDict(), 0
        for read in reads.tolist():
            missed += read not in cache
            cache[read] = None
            cache.move_to_end(read)
            if len(cache) > round(size):
                cache.popitem(last=False)
        assert share == pytest.approx(missed / len(reads), rel=0.25, abs=0.02)


ATEN = torch.ops.aten
TORCH = {
    "product": (ATEN.mm.default, (torch.ones(50, 3), torch.ones(3, 7)), ("product", "fp32", 7, 3), (50, 0)),
    "with a bias": (
        ATEN.addmm.default,
        (torch.ones(7), torch.ones(50, 3), torch.ones(3, 7)),
        ("product", "fp32", 7, 3),
        (50, 0),
    ),
    "gradient of weights": (
        ATEN.mm.default,
        (torch.ones(3, 50), torch.ones(50, 7)),
        ("product", "fp32", 7, 3),
        (50, 0),
    ),
    "sum of two": (ATEN.add.Tensor, (torch.ones(5, 2), torch.ones(5, 2)), ("torch", "add"), (0, 3 * 40)),
    "some rows": (
        ATEN.index_select.default,
        (torch.ones(90, 2), 0, torch.tensor([1, 8])),
        ("torch", "index_select"),
        (0, 16 + 2 * 16),
    ),
    "added to some rows": (
        ATEN.index_add_.default,
        (torch.ones(90, 2), 0, torch.tensor([1, 8]), torch.ones(2, 2)),
        ("torch", "index_add_"),
        (0, 2 * (16 + 16)),
    ),
    "list": (ATEN.cat.default, ([torch.ones(5), torch.ones(3).double()[:2].float()],), ("torch", "cat"), (0, 56)),
}


@pytest.mark.parametrize("name", TORCH)
def test_amounts_of_torch(name):
    function, arguments, operation, amounts = TORCH[name]
    assert of_torch(function, arguments, function(*arguments)) == (Operation(*operation), amounts)


def test_views_cost_nothing():
    x = torch.ones(4, 6)
    assert of_torch(ATEN.t.default, (x,), x.t()) is None
    assert of_torch(ATEN.view.default, (x, [24]), x.view(24)) is None


@st.composite
def halos(draw):
    """(received[rank][offset - 1], HaloCounts)"""
    ranks = draw(st.integers(1, 5))
    each = st.integers(0, 12)
    received = np.array(
        draw(st.lists(st.lists(each, min_size=ranks - 1, max_size=ranks - 1), min_size=ranks, max_size=ranks))
    )
    received = received.reshape(ranks, ranks - 1).astype(np.int64)
    receiver, offset = np.nonzero(received)
    return received, HaloCounts(ranks, receiver, offset + 1, received[receiver, offset])


@given(halos(), st.integers(1, 20))
def test_counted_halos(drawn, cap):
    received, halo = drawn
    ranks = len(received)
    pairs = [(r, (r - k) % ranks, int(received[r, k - 1])) for r in range(ranks) for k in range(1, ranks)]
    assert halo.received.tolist() == [sum(n for r, _, n in pairs if r == rank) for rank in range(ranks)]
    assert halo.sent.tolist() == [sum(n for _, s, n in pairs if s == rank) for rank in range(ranks)]
    assert halo.peers.tolist() == [sum(n > 0 for r, _, n in pairs if r == rank) for rank in range(ranks)]
    assert halo.takers.tolist() == [sum(n > 0 for _, s, n in pairs if s == rank) for rank in range(ranks)]
    assert halo.most.tolist() == received.max(0, initial=0).tolist()
    assert halo.largest == max(halo.received.max(), halo.sent.max())
    assert max(halo.rounds(cap).sizes, default=1) <= cap
    half = halo.scaled(0.5)
    assert half.received.sum() == np.rint(received * 0.5).sum() and (half.rows > 0).all()


FP32 = torch.float32
FORMS = st.sampled_from([Form(4, 0, FP32), *(Form(9, 8, FP32, NARROW[name]) for name in ("bf16", "int8"))])


@settings(deadline=None)
@given(halos(), FORMS, st.one_of(st.none(), FORMS), st.integers(0, 30))
def test_traffic_is_that_of_every_message(drawn, form, back, rows):
    """Against the loops of a stream: turns, their segments, and for each pair of ranks the rows that are there."""
    (received, halo), row_bytes = drawn, 4 * 16
    ranks, limit = len(received), 4 * row_bytes * (1 + rows)
    found = halo_traffic({(None, "inward"): {Use("k", form, back): 3}}, {(None, "inward"): halo}, row_bytes, limit)["k"]
    cut = halo.rounds(HaloBuffers(limit).cap(row_bytes))
    returned = (back.message_bytes(1), back.width * 4 if back.narrow else 0, back.widened_bytes) if back else (0, 0, 0)
    cap = HaloBuffers(limit).cap(
        form.message_bytes(1), returned[0], returned[1], max(form.widened_bytes, returned[2]), cut.longest
    )
    turns = [merge(s for index in group for s in cut.segments[index]) for group in coalesce(cut.sizes, cap)]
    size, messages = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    for turn in turns:
        for segment in turn:
            for receiver in range(ranks):
                there = max(0, min(segment.stop, int(received[receiver, segment.offset - 1])) - segment.start)
                for who, kind in (((receiver - segment.offset) % ranks, form), (receiver, back)):
                    if kind is not None and there:
                        size[who] += 3 * there * kind.row_bytes
                        messages[who] += 3
    assert (found.bytes.tolist(), found.messages.tolist(), found.turns) == (
        size.tolist(),
        messages.tolist(),
        3 * len(turns),
    )


GRAPH = Stats(100_000, 1_600_000, 64, 10)


@pytest.mark.parametrize("exponent", [0.0, 2.3])
@pytest.mark.parametrize("ranks", [2, 7, 64])
def test_assumed_shares_add_up(ranks, exponent):
    shares = assumed_shares(GRAPH._replace(exponent=exponent), ranks, 0.4, 0.25)
    assert shares.ranks == ranks and not shares.directed
    assert shares.nodes.sum() == pytest.approx(GRAPH.nodes, abs=ranks)
    assert (shares.own + shares.remote).sum() == pytest.approx(GRAPH.edges, abs=2 * ranks)
    assert shares.remote.sum() == pytest.approx(0.4 * (1 - 1 / ranks) * GRAPH.edges, abs=ranks)
    assert shares.train.sum() == pytest.approx(GRAPH.nodes / 4, abs=ranks)
    received, others = shares.inward.received, GRAPH.nodes - shares.nodes
    assert (0 < received).all() and (received <= np.minimum(shares.remote, others)).all()
    assert received.sum() == shares.inward.sent.sum()
    assert (shares.outer <= shares.nodes).all() and (shares.inward.peers == ranks - 1).all()
    assert shares.degrees.mean() == pytest.approx(16, abs=1), "degrees are rounded down"


def test_hubs_are_wanted_by_all_ranks():
    """They count once for each rank, so that a power law has fewer halo rows than equal degrees."""
    equal, skewed = (assumed_shares(GRAPH._replace(exponent=each), 8, 0.4, 0.1) for each in (0.0, 2.1))
    assert skewed.inward.received.sum() < 0.9 * equal.inward.received.sum()


@pytest.mark.parametrize("ranks, cut", [(1, 0.4), (4, 0.0)])
def test_nothing_between_ranks(ranks, cut):
    shares = assumed_shares(GRAPH, ranks, cut, 0.1)
    assert not shares.inward.received.any() and not shares.remote.any() and not shares.outer.any()
    assert shares.own.sum() == GRAPH.edges


def test_as_on_a_random_map():
    """A cut share of 1: an edge is as likely within a rank as between any two of them."""
    shares = assumed_shares(GRAPH, 4, 1.0, 0.1)
    assert shares.remote.sum() == pytest.approx(0.75 * GRAPH.edges, abs=4)
    # Of 75 000 others, those are received that have any of their 16 edges into this rank.
    assert shares.inward.received[0] == pytest.approx(75_000 * (1 - 0.75**16), rel=0.02)
    assert shares.outer[0] == pytest.approx(25_000, rel=0.01)


def test_less_than_a_row_from_each():
    shares = assumed_shares(Stats(2000, 4000, 4, 2), 200, 0.5, 0.1)
    assert shares.inward.received.mean() == pytest.approx(10, rel=0.25)
    assert shares.inward.rows.max() == 1 and (shares.inward.offset < 200).all()
