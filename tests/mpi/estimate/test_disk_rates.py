"""The local disk as `hpcgnn bench machine --scratch` measures it: all is written and read, and nothing is left."""

import pytest

from hpcgnn.errors import ScratchError
from hpcgnn.estimate.machine import disk
from hpcgnn.memory.scratch import GRAIN, Scratch


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(disk, "_PIECE", 4 * GRAIN)


def test_all_ranks_have_the_rates_of_what_all_have_written(comm, shared_path, small_pieces, monkeypatch):
    made = []

    def scratch(*arguments):
        made.append(Scratch(*arguments))
        return made[-1]

    monkeypatch.setattr(disk, "Scratch", scratch)
    found = disk.measure_disk(str(shared_path), 20 * GRAIN * comm.size, comm)
    assert len(set(comm.allgather_object((found.read, found.write)))) == 1 and min(found.read, found.write) > 0
    assert [(each.written, each.read) for each in made] == [(20 * GRAIN, 20 * GRAIN)]
    assert list(shared_path.iterdir()) == []


def test_a_disk_without_room_is_said_before_anything_is_written(comm, shared_path):
    with pytest.raises(ScratchError, match=r"expected a directory with [\d.]+ GiB free .*--scratch-size"):
        disk.measure_disk(str(shared_path), 1 << 60, comm)
