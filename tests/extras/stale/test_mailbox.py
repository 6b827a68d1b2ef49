"""Letters between ranks: each is used as many epochs after it was posted as was asked for, and a run that goes on from
saved letters is the run that was not stopped.
"""

import numpy as np
import pytest
import torch
from hpcgnn.exchange.mailbox import Mailbox

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.wire import NARROW, Form, Wire

from ..schedules.test_stale import Delayed, used_in

pytestmark = pytest.mark.ranks(2, 3)

EPOCHS, WIDTH = 7, 4
PLAIN = Form(WIDTH, 0, torch.float64)
HALF = Form(WIDTH, WIDTH, torch.float64, NARROW["bf16"])


def rows_between(source, dest):
    """How many rows a rank sends to another one: to some none."""
    return (2 * source + dest) % 4


def peers(comm):
    """(sources, dests) of a Mailbox."""
    size, rank = comm.size, comm.rank
    come = [((rank - k) % size, rows_between((rank - k) % size, rank)) for k in range(1, size)]
    return come, [((rank + k) % size, rows_between(rank, (rank + k) % size)) for k in range(1, size)]


def values(epoch, source, dest):
    """(rows, WIDTH): what one rank sends to another one in an epoch, in numbers that bfloat16 has."""
    random = np.random.default_rng([epoch, source, dest])
    return torch.from_numpy(random.integers(-99, 99, (rows_between(source, dest), WIDTH)).astype(float))


def all_of(epoch, comm):
    """(rows, WIDTH) of all that come in an epoch, in the order of the sources."""
    come = [values(epoch, source, comm.rank) for source, _ in peers(comm)[0]]
    return torch.cat(come) if come else torch.zeros(0, WIDTH, dtype=torch.float64)


def lease_for(form, rows):
    """A Lease with memory to widen so many rows."""
    sizes = [0] * 8 + [rows * form.widened_bytes]
    return HaloBuffers(sum(sizes)).lease(sizes[:-1], sizes[-1])


def make(comm, delay):
    return Mailbox(comm, *peers(comm), delay, "letters")


def post(comm, box, form, epoch):
    dests = [(rank, rows) for rank, rows in peers(comm)[1] if rows]
    messages = box.prepare(form)
    assert [rows for _, rows in messages] == [rows for _, rows in dests]
    for (message, _), (rank, _) in zip(messages, dests):
        assert len(message) == rows_between(comm.rank, rank) * form.row_bytes
        Wire("fp32" if form.kind is None else "bf16").encode(message, form, values(epoch, comm.rank, rank), 0)
    box.post()


def used(box, lease):
    """A copy of all rows that are used, asked for in pieces that do not end where messages do."""
    pieces = [box.rows(first, min(first + 2, box.num_rows), lease).clone() for first in range(0, box.num_rows, 2)]
    return torch.cat(pieces) if pieces else torch.zeros(0, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("form", [PLAIN, HALF], ids=["plain", "narrow"])
@pytest.mark.parametrize("delay", [1, 2])
def test_letters_are_used_after_the_delay(comm, delay, form):
    """In the first epochs, the newest."""
    box, oracle = make(comm, delay), Delayed(delay)
    assert box.kept_bytes == 0
    assert box.num_rows == sum(rows for _, rows in peers(comm)[0])
    for epoch in range(EPOCHS):
        comm.ledger.take()
        post(comm, box, form, epoch)
        lease = lease_for(form, 2)  # two rows at a time
        box.open()
        entry = comm.ledger.take().get("letters")
        counts = (entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)
        sent = sum(rows for _, rows in peers(comm)[1])
        assert counts == (
            sum(rows > 0 for _, rows in peers(comm)[1]),
            sent * form.row_bytes,
            box.num_rows * form.row_bytes,
        )
        expected = oracle(all_of(epoch, comm))
        for _ in range(2):  # what was opened is read as often as one likes
            torch.testing.assert_close(used(box, lease), expected, rtol=1e-12, atol=1e-12)
        assert torch.equal(used(box, lease), all_of(used_in(epoch, delay), comm))
        letters = min(epoch + 1, delay + 1) * box.num_rows
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
            rows.append(used(box, lease_for(form, 2)))
        return rows, {name: tensor.clone() for name, tensor in box.state().items()}

    expected, _ = found_by(make(comm, delay), range(EPOCHS + delay))
    before, state = found_by(make(comm, delay), range(stop))
    assert sum(name.startswith("letter-") for name in state) == min(stop, delay + 1)
    second = make(comm, delay)
    second.load_state(state)
    after, _ = found_by(second, range(stop, EPOCHS + delay))
    for mine, wanted in zip(before + after, expected, strict=True):
        assert torch.equal(mine, wanted)
