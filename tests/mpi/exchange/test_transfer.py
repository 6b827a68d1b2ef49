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

from ..small import stored
from .test_stream import assert_near

pytestmark = pytest.mark.ranks(2, 3)

PLAIN = Form(3, 0, torch.float64)
NOTHING = Form(0, 0, torch.float64)
NARROW = {
    name: Form(width, narrow, torch.float64, KINDS[name])
    for name, width, narrow in (("bf16", 11, 9), ("int8", 11, 7), ("int4", 11, 7), ("int2", 6, 6))
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
