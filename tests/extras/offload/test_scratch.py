"""The scratch file: written rows come back, nothing else does, and nothing is left behind."""

import os

import numpy as np
import pytest
import torch

from hpcgnn.extras.offload.folders import _file_system, check_folder, check_space
from hpcgnn.extras.offload.keeping import DiskKeeper
from hpcgnn.extras.offload.limits import Limit
from hpcgnn.extras.offload.scratch import REQUEST, ScratchError, ScratchFile
from hpcgnn.memory.arena import GRAIN, SMALL, Arena, rounded

SIZES = GRAIN, REQUEST - GRAIN, REQUEST, 2 * REQUEST + 3 * GRAIN
SAID = Limit(1 << 30, 0, 1, "1G")


def address(array):
    return array.__array_interface__["data"][0]


def aligned(size):
    """uint8 (size,) at a multiple of GRAIN."""
    whole = np.empty(size + GRAIN, np.uint8)
    first = -address(whole) % GRAIN
    return whole[first : first + size]


@pytest.fixture(params=[True, False])
def scratch(request, tmp_path):
    found = ScratchFile(str(tmp_path))
    if not request.param:  # as on a file system that cannot be written past the page cache
        import fcntl

        flags = fcntl.fcntl(found._file.descriptor, fcntl.F_GETFL)
        fcntl.fcntl(found._file.descriptor, fcntl.F_SETFL, flags & ~getattr(os, "O_DIRECT", 0))
        found.direct = False
    return found


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_written_comes_back(scratch, whole):
    """whole: memory of pages; else memory that begins and ends anywhere."""
    draw = np.random.default_rng(0)
    written = []
    for size in SIZES:
        if whole:
            data = aligned(size)
            data[:] = draw.integers(0, 256, size, np.uint8)
        else:
            data = draw.integers(0, 256, size - 5, np.uint8)[3:]
        place = scratch.place(rounded(len(data)))
        written.append(
            (data.copy(), place, scratch.result(scratch.write(torch.from_numpy(data), len(data), place, whole)))
        )
    for data, place, sums in reversed(written):
        back = aligned(rounded(len(data)))
        scratch.result(scratch.fill(torch.from_numpy(back), len(back), place, sums))
        np.testing.assert_array_equal(back[: len(data)], data)
    assert scratch.written == scratch.read == sum(rounded(len(data)) for data, _, _ in written)


def overwrite(file, place):
    page = aligned(GRAIN)
    page[:] = 0
    os.pwrite(file, memoryview(page), place + GRAIN)


@pytest.mark.parametrize(
    "damage, words",
    [
        (overwrite, "other bytes came back than were written"),
        (lambda file, place: os.ftruncate(file, GRAIN), "shorter than it was"),
    ],
)
def test_other_bytes_are_never_used(scratch, damage, words):
    data, place = aligned(REQUEST), scratch.place(REQUEST)
    data[:] = 1
    sums = scratch.result(scratch.write(torch.from_numpy(data), REQUEST, place, True))
    damage(scratch._file.descriptor, place)
    back = aligned(REQUEST)
    with pytest.raises(ScratchError, match=words):
        scratch.result(scratch.fill(torch.from_numpy(back), REQUEST, place, sums))


def test_where_none_can_be(tmp_path):
    with pytest.raises(ScratchError, match="cannot make a scratch file"):
        ScratchFile(str(tmp_path / "absent"))
    with pytest.raises(ScratchError, match="there is no such directory"):
        check_folder(str(tmp_path / "absent"), SAID)
    with pytest.raises(ScratchError, match=r"GiB free; expected 1073741824\.00 GiB for the 1 ranks"):
        check_space(str(tmp_path), 1 << 60, 1)
    if _file_system("/dev/shm") == "tmpfs":
        with pytest.raises(ScratchError, match="is of tmpfs, which is memory itself"):
            check_folder("/dev/shm", SAID)


def test_kept_tensors_share_their_memory(tmp_path):
    """Two views of one tensor come back as two views of one tensor, wherever it was meanwhile."""
    arena = Arena()
    keeper = arena.keeper = DiskKeeper(arena, 0, ScratchFile(str(tmp_path)))
    x = arena.empty(64, SMALL // 64).copy_(torch.arange(SMALL, dtype=torch.float32).view(64, -1))
    whole, columns, expected = arena.keep(x), arena.keep(x[:, 5:9]), x.clone()
    while keeper.free_some():
        pass
    later = arena.keep(x[3])  # by somebody who still holds it
    del x
    assert arena.taken == 0 and keeper.away > 0
    back, part = whole.tensor(), columns.tensor()
    assert torch.equal(back, expected) and torch.equal(part, expected[:, 5:9]) and part.stride() == (SMALL // 64, 1)
    part.fill_(7)
    assert bool((back[:, 5:9] == 7).all()) and bool((later.tensor()[5:9] == 7).all())
    del back, part, whole, columns, later
    assert arena.taken == 0 and keeper.away == 0
