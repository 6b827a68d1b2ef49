"""The thread curve of `hpcgnn bench machine`: kernels of 1, 2, 4, … threads, by all ranks and by one."""

import pytest
import torch

from hpcgnn import kernels
from hpcgnn.estimate.machine.messages import network_of
from hpcgnn.estimate.machine.thread_curve import thread_curves, thread_numbers
from hpcgnn.ops.row_tiles import TILE_ROWS


@pytest.mark.parametrize("most, numbers", [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])])
def test_thread_numbers(most, numbers):
    assert thread_numbers(most) == numbers


def test_all_ranks_have_the_same_curves(comm):
    made, threads = [], set()

    def make(rows):
        """A step with one kernel, and with work that is in none."""
        made.append(rows)
        x, y = torch.ones(rows, 64), torch.empty(rows, 64)
        indptr, indices = torch.arange(0, 8 * rows + 1, 8), torch.randint(rows, (8 * rows,), dtype=torch.int32)

        def step():
            threads.add(torch.get_num_threads())
            kernels.gather(y, x, indptr, indices)
            x.mul_(1.0)

        return step

    cores = 2
    curves = thread_curves(make, cores, cores * comm.size, comm)
    assert torch.get_num_threads() == 1 and made == [2 * TILE_ROWS] and threads == {1, 2}
    assert comm.allgather_object(curves) == [curves] * comm.size
    for curve in (curves.speed, curves.speed_alone)[: 1 if comm.size == 1 else 2]:
        assert [number for number, _ in curve] == [1, 2] and curve[0][1] == 1.0
        assert 0 < curve[1][1] < 100
    assert (curves.speed_alone == []) == (comm.size == 1)
    ((number, seconds),) = curves.wake
    assert number == 2 and 0 <= seconds < 1


def test_messages_of_one_exchange_are_told_apart_from_it(comm):
    network = network_of(comm)
    assert network.cpu_seconds_per_message > 0 and network.cpu_seconds_per_exchange >= 0
    if comm.size > 1:
        assert network.collective_step > 0
        assert network.meeting(comm.size) == pytest.approx(network.collective_step * (comm.size - 1).bit_length())
