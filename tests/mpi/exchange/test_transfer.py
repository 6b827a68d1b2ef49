"""Turns and transfers by themselves: sizes against the plan, any range of the rows that came, and what is added where
it returns.
"""

import graphs
import numpy as np
import pytest
import torch

from hpcgnn import kernels
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.narrow import NARROW as KINDS
from hpcgnn.exchange.rounds import merge
from hpcgnn.exchange.transfer import Transfer, Turn, add_message
from hpcgnn.exchange.wire import Form, Wire, decode

from ..narrowing import error_bound
from ..small import stored
from .test_stream import assert_near

pytestmark = pytest.mark.ranks(2, 3)

PLAIN = Form(3, 0, torch.float64)
NOTHING = Form(0, 0, torch.float64)
NARROW = {
    name: Form(width, narrow, torch.float64, KINDS[name]) for name, width, narrow in (("bf16", 11, 9), ("int8", 11, 7))
}
FORMS = {"fp32": PLAIN, **NARROW}


@pytest.fixture(scope="module")
def local(comm, session_path):
    """Rounds of two rows, so that a peer's rows are in several."""
    _, where, file = stored(comm, session_path, "power law")
    return graphs.load(file, where.maps["dealt"], comm, cap=2)


def groups_of(plan):
    """Lists of rounds for turns: all in one; the first, the others; and some from the middle."""
    every = list(range(len(plan.rounds)))
    found = [every, every[:1], every[1:], every[len(every) // 3 : len(every) // 2 + 1]]
    return [group for group in found if group]


def turn_of(plan, group, number=0):
    return Turn(number, merge(segment for index in group for segment in plan.rounds[index]), group, plan)


def halo_values(comm, local, table):
    """The rows of a table (n, F) that belong to this rank's halo, in its order."""
    plan, sent = local.inward.plan, table[local.original_id.numpy()]
    gone = comm.allgather_object([sent[plan.rows_to(k).numpy()] for k in range(1, plan.size)])
    parts = [gone[plan.source(offset)][offset - 1] for offset in range(1, plan.size)]
    return np.concatenate(parts) if parts else table[:0]


def test_a_turn_says_what_the_plan_says(comm, local):
    plan = local.inward.plan
    assert bool(plan.rounds) == (comm.size > 1)
    for group in groups_of(plan):
        turn = turn_of(plan, group, 3)
        peers = {segment.offset: [] for index in group for segment in plan.rounds[index]}
        for index in group:
            for segment in plan.rounds[index]:
                peers[segment.offset] += range(segment.start, segment.stop)
        come = [(k, [row for row in rows if row < plan.receive_counts[k - 1]]) for k, rows in peers.items()]
        go = [(k, [row for row in rows if row < plan.send_counts[k - 1]]) for k, rows in peers.items()]
        come, go = ([(k, rows) for k, rows in each if rows] for each in (come, go))
        assert turn.number == 3
        assert [(s.offset, s.start, count) for s, count in turn.incoming] == [(k, r[0], len(r)) for k, r in come]
        assert [(s.offset, s.start, count) for s, count in turn.outgoing] == [(k, r[0], len(r)) for k, r in go]
        assert turn.num_received == sum(len(rows) for _, rows in come)
        assert [each.rows.tolist() for each in turn.sent_by] == [plan.rows_to(k)[rows].tolist() for k, rows in go]
        assert len(turn.sent) == bool(go), "of a rank by itself all rows follow each other"
        for place, sent in turn.sent:
            assert place == 0 and sent.rows.dtype == torch.int32 and sent.count == len(sent.rows) == turn.num_sent
            assert sent.rows.tolist() == [i for each in turn.sent_by for i in each.rows.tolist()]
        # Where the rows of a round stand: one after another, those of rounds of which nothing comes left out.
        first = 0
        for index, start, stop in turn.places:
            assert (start, stop - start) == (first, plan.num_received(plan.rounds[index])) and stop > start
            first = stop
        assert first == turn.num_received
        assert [i for i, *_ in turn.places] == [i for i in group if plan.num_received(plan.rounds[i])]
        for form in (*FORMS.values(), NOTHING):
            for found, messages in ((turn.bytes_in(form), come), (turn.bytes_out(form), go)):
                exact = [len(rows) * form.row_bytes for _, rows in messages]
                assert found == sum(-(-size // 8) * 8 for size in exact)


def test_turns_agree_on_both_ends(comm, local):
    """What one rank means to send is what the other one expects, message by message."""
    for group in groups_of(local.inward.plan):
        plan, turn = local.inward.plan, turn_of(local.inward.plan, group)
        out = [(comm.rank, plan.dest(s.offset), count) for s, count in turn.outgoing]
        come = [(plan.source(s.offset), comm.rank, count) for s, count in turn.incoming]
        ends = comm.allgather_object((out, come))
        assert sorted(each for out, _ in ends for each in out) == sorted(each for _, come in ends for each in come)
        assert len({each[:2] for each in out}) == len(out), "a peer gets one message in a turn"


def make_transfer(comm, local, turn, form, back=NOTHING):
    """A Transfer with memory of its own, filled with noise."""
    widened = max(1, turn.num_received)
    summed = back.width * 8 * turn.num_received if back.narrow else 0
    # Results that are not narrowed are summed where they are sent from.
    given = max(turn.bytes_in(back), 0 if back.narrow else back.width * 8 * turn.num_received)
    sizes = [turn.bytes_in(form)] * 2 + [turn.bytes_out(form)] + [given] * 2 + [turn.bytes_out(back)] * 2
    sizes += [summed, max(form.widened_bytes, back.widened_bytes) * widened]
    buffers = HaloBuffers(sum(sizes))
    lease = buffers.lease(sizes[:-1], sizes[-1])
    buffers._memory.fill_(0xA5)
    name = next((name for name, kind in KINDS.items() if kind == (form.kind or back.kind)), "fp32")
    wire = Wire(name, local.original_id, lambda number: number)
    return Transfer(turn, lease, comm, wire, form, back)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_any_range_of_the_rows(comm, local, name, scaled):
    """Across messages and within one: the same numbers as all rows at once. The transfer is used twice."""
    form, plan, n = FORMS[name], local.inward.plan, local.num_nodes
    table = np.random.default_rng(2).standard_normal((2, n, form.width))
    factors = np.arange(1.0, n + 1)
    scale = torch.from_numpy(factors[local.original_id.numpy()]) if scaled else None
    for group in groups_of(plan):
        turn = turn_of(plan, group)
        transfer = make_transfer(comm, local, turn, form)
        for version in table:
            mine = torch.from_numpy(version[local.original_id.numpy()])
            first = int(plan.starts[group[0]])
            exact = version * factors[:, None] if scaled else version
            exact = halo_values(comm, local, exact)[first : first + turn.num_received]
            transfer.begin(mine, scale, scale, 11, "rows")
            transfer.finish()
            count = turn.num_received
            whole = transfer.rows(0, count).clone()
            assert whole.shape == (count, form.width) and whole.dtype == torch.float64
            if not form.narrow:
                np.testing.assert_array_equal(whole.numpy(), exact)
            else:
                assert_near(name, whole[:, : form.narrow].numpy(), exact[:, : form.narrow])
                np.testing.assert_array_equal(whole[:, form.narrow :].numpy(), exact[:, form.narrow :])
            bounds = {0, 1, count // 3, count // 2, count - 1, count}
            before = 0
            for _, rows in turn.incoming:  # around the end of every message
                before += rows
                bounds |= {before - 1, before, before + 1}
            bounds = sorted(place for place in bounds if 0 <= place <= count)
            for start in bounds:
                for stop in bounds:
                    if start <= stop:
                        assert torch.equal(transfer.rows(start, stop), whole[start:stop])
            for _, start, stop in turn.places:
                assert torch.equal(transfer.rows(start, stop), whole[start:stop])


@pytest.mark.parametrize("name", FORMS)
def test_what_returns(comm, local, name):
    """`back` begins as zeros, whatever was there; what is put there is added to the rows that came from there."""
    form, plan = FORMS[name], local.inward.plan
    ids = local.original_id
    for group in groups_of(plan):
        turn = turn_of(plan, group)
        transfer = make_transfer(comm, local, turn, PLAIN, form)
        random = np.random.default_rng(comm.rank)
        for _ in range(2):
            total = torch.from_numpy(random.standard_normal((len(ids), form.width)))
            before = total.clone()
            transfer.begin(torch.zeros(len(ids), PLAIN.width, dtype=torch.float64), None, None, 0, "rows")
            transfer.finish()
            transfer.open_returns()
            assert transfer.back.shape == (turn.num_received, form.width) and not transfer.back.any()
            given = random.standard_normal((turn.num_received, form.width))
            transfer.back += torch.from_numpy(given)
            comm.ledger.take()
            transfer.begin_returns(5, "home")
            transfer.finish_returns(total)
            entry = comm.ledger.take().get("home")
            counts = (entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)
            row = form.row_bytes
            assert counts == (len(turn.incoming), row * turn.num_received, row * turn.num_sent)
            # What each rank gave back to each other one, put together in the order in which owners add it.
            sizes = [count for _, count in turn.incoming]
            parts = np.split(given, np.cumsum(sizes)[:-1]) if sizes else []
            gone = {(comm.rank, plan.source(s.offset)): part for (s, _), part in zip(turn.incoming, parts)}
            every = {pair: part for each in comm.allgather_object(gone) for pair, part in each.items()}
            expected, bound = before.numpy(), np.full((len(ids), form.width), 1e-12)
            for (segment, _), each in zip(turn.outgoing, turn.sent_by):
                rows = each.rows
                part = every[plan.dest(segment.offset), comm.rank]
                expected[rows.numpy()] += part
                if form.narrow:
                    bound[rows.numpy(), : form.narrow] += error_bound(name, part[:, : form.narrow])
            assert (np.abs(total.numpy() - expected) <= bound).all()


def test_rows_without_columns_are_not_sent(comm, local):
    for group in groups_of(local.inward.plan):
        transfer = make_transfer(comm, local, turn_of(local.inward.plan, group), NOTHING, PLAIN)
        comm.ledger.take()
        transfer.begin(torch.zeros(local.num_owned, 0, dtype=torch.float64), None, None, 0, "rows")
        transfer.finish()
        assert not comm.ledger.take()
        assert transfer.rows(0, transfer.num_received).shape == (transfer.num_received, 0)


@pytest.mark.parametrize("memory_rows", [1, 3, 100])
@pytest.mark.parametrize("name", FORMS)
def test_add_message(name, memory_rows):
    """To rows that are named twice as well, and in as many steps as the memory to widen them asks for."""
    form, rows = FORMS[name], 10
    random = np.random.default_rng(4)
    values = torch.from_numpy(random.standard_normal((rows, form.width)))
    index = torch.tensor([7, 0, 3, 3, 5, 7, 1, 0, 2, 7], dtype=torch.int32)
    message = torch.empty(rows * form.row_bytes, dtype=torch.uint8)
    wire = Wire(name, torch.arange(rows), lambda number: number)
    wire.encode(message, form, values, None, None, kernels.stream_key(1))
    sizes = [0] * 8 + [memory_rows * form.widened_bytes]
    total = torch.ones(9, form.width, dtype=torch.float64)
    add_message(total, index, message, form, HaloBuffers(sum(sizes)).lease(sizes[:-1], sizes[-1]))
    sent = torch.empty_like(values)
    decode(sent, form, message, rows, 0)
    assert_near(name, sent[:, : form.narrow].numpy(), values[:, : form.narrow].numpy())
    assert torch.equal(sent[:, form.narrow :], values[:, form.narrow :])
    assert not form.narrow or bool((sent != values).any()), "they were rounded"
    expected = torch.ones(9, form.width, dtype=torch.float64)
    for place, row in zip(index.tolist(), sent):
        expected[place] += row
    assert bool((total[[4, 6, 8]] == 1).all())
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
