"""The stream by itself: the results that return to the owners of rows, rounding on the way, and the cost."""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn import kernels
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.stream import Returns, Rows, Stream
from hpcgnn.exchange.wire import Wire

from ..narrowing import DTYPES, error_bound, row_bytes
from ..small import stored

MAPS = ("dealt", "one empty", "all on last")
NAMES = ("star", "power law", "no edges", "random directed")
#: rows of a round, rows of a turn
CAPS = [(1000, 1000), (4, 4), (4, 11)]


class Case:
    """A rank's share of a graph, with a table of numbers for all nodes that every rank knows."""

    def __init__(self, comm, folder, name, map_name, fine_rows):
        self.graph, where, file = stored(comm, folder, name)
        self.comm, self.owner = comm, where.owner(map_name)
        self.local = graphs.load(file, where.maps[map_name], comm, cap=fine_rows)
        self.order, self.fine_rows = where.order, fine_rows
        self.ids = self.local.original_id.numpy()

    def halo_of(self, rank):
        """The original ids of a rank's halo, in the order in which rows come: by ring offset, then as the file has
        them.
        """
        src, dst = self.graph.src, self.graph.dst
        needed = np.zeros(self.graph.num_nodes, bool)
        needed[src[self.owner[dst] == rank]] = True
        size, found = self.comm.size, []
        for offset in range(1, size):
            found += [node for node in self.order if needed[node] and self.owner[node] == (rank - offset) % size]
        return np.array(found, np.int64)

    def stream(self, cap, row, returned=0, summed=0, widened=0, wire=None):
        """(Stream, its HaloBuffers): for turns of `cap` rows, of these bytes each."""
        adjacency = self.local.inward
        limit = cap * (3 * row + 4 * returned + summed) + widened * adjacency.plan.longest_round
        buffers = HaloBuffers(limit)
        return Stream(adjacency.own, adjacency.halo, adjacency.plan, buffers, self.comm, wire), buffers

    def messages(self, cap, back=False):
        """How many messages this rank sends in one pass. back: one for each that came."""
        halo = oracle.halo_rows(self.graph.src, self.graph.dst, self.owner, self.comm.size)
        return oracle.messages(halo, self.fine_rows, cap, back=back)[self.comm.rank]

    def table(self, width, seed=0):
        """(n, width) of random numbers."""
        return np.random.default_rng(seed).standard_normal((self.graph.num_nodes, width))

    def mine(self, table):
        """A rank's part of a table."""
        return torch.from_numpy(np.ascontiguousarray(table[self.ids]))


def booked(ledger, kind):
    """(messages, bytes sent, bytes received) of a kind since the last call, which is all that there was."""
    traffic = ledger.take()
    entry = traffic.pop(kind, None)
    assert not traffic, "no other traffic: no ids, no counts"
    return (entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)


@pytest.mark.smoke
@pytest.mark.parametrize("fine_rows, cap", CAPS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_added_returns_to_the_owners(comm, session_path, name, fine_rows, cap):
    """Each rank adds numbers of its own for each row that it was given; whole numbers, so that sums are exact.

    Without columns, only the returned rows travel.
    """
    for map_name in MAPS:
        case = Case(comm, session_path, name, map_name, fine_rows)
        n, halos = case.graph.num_nodes, [case.halo_of(rank) for rank in range(comm.size)]
        back_messages = case.messages(cap, back=True)
        for width, returned in ((3, 2), (0, 3)):
            stream, buffers = case.stream(cap, 8 * width, 8 * returned)
            random = np.random.default_rng(5)
            start = random.integers(-99, 99, (n, returned)).astype(float)
            added = random.integers(-99, 99, (comm.size, n, returned)).astype(float)
            expected = start + added[case.owner, np.arange(n)]
            for rank, halo in enumerate(halos):
                np.add.at(expected, halo, added[rank][halo])
            table, total = case.table(width), case.mine(start)
            mine, halo = added[comm.rank], halos[comm.rank]
            comm.ledger.take()
            for block, rows, _, back, *_ in stream(Rows(case.mine(table)), "both", Returns(total)):
                assert back.shape == (len(rows), returned)
                if block.first_column is None:
                    assert back is total
                    back += case.mine(mine)
                    continue
                places = halo[block.first_column : block.first_column + len(rows)]
                np.testing.assert_array_equal(rows.numpy(), table[places])
                assert not back.any(), "it begins as zeros"
                back += torch.from_numpy(mine[places])
            np.testing.assert_array_equal(total.numpy(), expected[case.ids])
            go, come = stream.plan.num_boundary, len(halo)
            assert booked(comm.ledger, "both") == (
                (case.messages(cap) if width else 0) + back_messages,
                8 * (width * go + returned * come),
                8 * (width * come + returned * go),
            )
            assert buffers.nbytes <= buffers.limit


def make_wire(name, local, seed=3):
    return Wire(name, local.original_id, lambda number: kernels.stream_key(seed, number))


def assert_near(dtype, found, exact):
    """That numbers (m, F), rounded on their way, are within the error of their type."""
    assert (np.abs(found - exact) <= error_bound(dtype, exact)).all()


@pytest.mark.parametrize("fine_rows, cap", [(1000, 1000), (4, 11)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_columns(comm, session_path, dtype, fine_rows, cap):
    """Leading columns are rounded once on each way, the others are not; bytes say the same."""
    for map_name in MAPS[:2]:
        case = Case(comm, session_path, "power law", map_name, fine_rows)
        width, narrow, returned, narrow_back = 11, 9, 9, 8
        sent_row = row_bytes(dtype, narrow) + 8 * (width - narrow)
        back_row = row_bytes(dtype, narrow_back) + 8 * (returned - narrow_back)
        aligned, back_aligned = -(-sent_row // 8) * 8, -(-back_row // 8) * 8
        wire = make_wire(dtype, case.local)
        stream, buffers = case.stream(cap, aligned, back_aligned, 8 * returned, 8 * width, wire)
        halos = [case.halo_of(rank) for rank in range(comm.size)]
        halo, factors = halos[comm.rank], np.arange(1.0, case.graph.num_nodes + 1) / 9
        table = case.table(width)
        gone = np.random.default_rng(8).standard_normal((comm.size, case.graph.num_nodes, returned))
        rows = Rows(case.mine(table), case.mine(factors), narrow=narrow)
        total, found = torch.zeros(len(case.ids), returned, dtype=torch.float64), []
        comm.ledger.take()
        for block, given, _, back, *_ in stream(rows, "both", Returns(total, narrow_back)):
            if block.first_column is None:
                assert given is rows.x, "own rows are not rounded"
                continue
            assert given.dtype == torch.float64
            found.append(given.clone().numpy())
            back += torch.from_numpy(gone[comm.rank][halo[block.first_column : block.first_column + len(given)]])
        sent, received = stream.plan.num_boundary, len(halo)
        assert booked(comm.ledger, "both") == (
            case.messages(cap) + case.messages(cap, back=True),
            sent_row * sent + back_row * received,
            sent_row * received + back_row * sent,
        )
        assert buffers.nbytes <= buffers.limit
        if len(halo):
            found, exact = np.concatenate(found), (factors[:, None] * table)[halo]
            assert_near(dtype, found[:, :narrow], exact[:, :narrow])
            assert (found[:, :narrow] != exact[:, :narrow]).any(), "they were rounded"
            np.testing.assert_array_equal(found[:, narrow:], exact[:, narrow:])
        # Each returned row is rounded by itself and added exactly, up to the last digit: so the errors add up.
        expected, bound = np.zeros((case.graph.num_nodes, returned)), np.zeros((case.graph.num_nodes, returned))
        for rank, halo in enumerate(halos):
            part = gone[rank][halo]
            expected[halo] += part
            bound[halo, :narrow_back] += error_bound(dtype, part[:, :narrow_back])
        error = np.abs(total.numpy() - expected[case.ids])
        assert (error <= bound[case.ids] + 1e-12).all()
