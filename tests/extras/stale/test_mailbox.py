"""Letters between ranks: each is used as many epochs after it was posted as was asked for, and a run that goes on from
saved letters is the run that was not stopped.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcgnn.exchange.nodes import Lane
from hpcgnn.exchange.wire import NARROW, Form, encode
from hpcgnn.extras.stale.streams import Mailbox

from .test_stale import Delayed, used_in

pytestmark = pytest.mark.ranks(2, 3)

EPOCHS, WIDTH = 7, 4
PLAIN = Form(WIDTH, 0, torch.float64)
HALF = Form(WIDTH, WIDTH, torch.float64, NARROW["bf16"])


def rows_between(source, dest):
    """How many rows a rank sends to another one: to some none."""
    return (2 * source + dest) % 4


def turn(comm):
    """The lanes of a Turn in which every rank sends to every other one."""
    size, rank, lanes = comm.size, comm.rank, {}
    for name, pairs in (
        ("incoming", [((rank - k) % size, rank) for k in range(1, size)]),
        ("outgoing", [(rank, (rank + k) % size) for k in range(1, size)]),
    ):
        lanes[name] = [Lane(k, 0, rows_between(*pair), *pair) for k, pair in enumerate(pairs, 1) if rows_between(*pair)]
    return SimpleNamespace(**lanes)


def values(epoch, source, dest):
    """(rows, WIDTH): what one rank sends to another one in an epoch, in numbers that bfloat16 has."""
    random = np.random.default_rng([epoch, source, dest])
    return torch.from_numpy(random.integers(-99, 99, (rows_between(source, dest), WIDTH)).astype(float))


def all_of(epoch, comm):
    """(rows, WIDTH) of all that come in an epoch, in the order of the sources."""
    come = [values(epoch, lane.sender, comm.rank) for lane in turn(comm).incoming]
    return torch.cat(come) if come else torch.zeros(0, WIDTH, dtype=torch.float64)


def make(comm, delay):
    return Mailbox(comm, turn(comm), delay, home=False)


def post(comm, box, form, epoch):
    messages = box.prepare(form)
    for lane, part in zip(messages.lanes, messages.parts, strict=True):
        assert len(part) == rows_between(comm.rank, lane.receiver) * form.row_bytes
        encode(part, form, values(epoch, comm.rank, lane.receiver), 0)
    box.post()


def used(box):
    """A copy of all rows that are used, asked for two at a time, so that pieces do not end where messages do."""
    rows, memory = box.opened.starts[-1], torch.empty(2 * box.form.widened_bytes, dtype=torch.uint8)
    pieces = [box.opened.read(first, min(first + 2, rows), memory).clone() for first in range(0, rows, 2)]
    return torch.cat(pieces) if pieces else torch.zeros(0, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("form", [PLAIN, HALF], ids=["plain", "narrow"])
@pytest.mark.parametrize("delay", [1, 2])
def test_letters_are_used_after_the_delay(comm, delay, form):
    """In the first epochs, the newest."""
    box, oracle = make(comm, delay), Delayed(delay)
    assert box.kept_bytes == 0
    lanes, rows = turn(comm), sum(lane.rows for lane in turn(comm).incoming)
    sent = sum(lane.rows for lane in lanes.outgoing)
    for epoch in range(EPOCHS):
        comm.ledger.take()
        post(comm, box, form, epoch)
        box.open()
        entry = comm.ledger.take().get("halo_forward")
        counts = (entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)
        assert counts == (len(lanes.outgoing), sent * form.row_bytes, rows * form.row_bytes)
        expected = oracle(all_of(epoch, comm))
        for _ in range(2):  # what was opened is read as often as one likes
            torch.testing.assert_close(used(box), expected, rtol=1e-12, atol=1e-12)
        assert torch.equal(used(box), all_of(used_in(epoch, delay), comm))
        letters = min(epoch + 1, delay + 1) * rows
        assert box.kept_bytes == form.row_bytes * (letters + sent), "r + 1 letters and the sent one, however long"
    box.state()


@pytest.mark.parametrize("form", [PLAIN, HALF], ids=["plain", "narrow"])
@pytest.mark.parametrize("delay, stop", [(1, 1), (1, 2), (2, 2), (2, 4), (5, 4), (10, 11)])
def test_going_on_is_not_having_stopped(comm, delay, form, stop):
    def found_by(box, epochs):
        rows = []
        for epoch in epochs:
            post(comm, box, form, epoch)
            box.open()
            rows.append(used(box))
        return rows, {name: tensor.clone() for name, tensor in box.state().items()}

    expected, _ = found_by(make(comm, delay), range(EPOCHS + delay))
    before, state = found_by(make(comm, delay), range(stop))
    assert sum(name.startswith("letter-") for name in state) == min(stop, delay + 1)
    second = make(comm, delay)
    second.load_state(state)
    after, _ = found_by(second, range(stop, EPOCHS + delay))
    for mine, wanted in zip(before + after, expected, strict=True):
        assert torch.equal(mine, wanted)
