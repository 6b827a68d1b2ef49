"""What estimates are made of: the communicator without others, and counted halos."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcgnn.estimate.traffic import HaloCounts, Nodes, halo_traffic
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.rounds import coalesce, merge
from hpcgnn.exchange.stream import Use
from hpcgnn.exchange.wire import NARROW, Form


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
    return received, HaloCounts(Nodes(ranks, 1), receiver, offset + 1, received[receiver, offset])


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
    assert (found.bytes.tolist(), found.messages.tolist()) == (size.tolist(), messages.tolist())
