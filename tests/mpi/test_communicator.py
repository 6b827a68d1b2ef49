"""The communicator's verbs: what arrives is what was sent, with and without the helper thread, spinning or sleeping."""

import pytest
import torch
from mpi4py import MPI

from hpcgnn.comm.mpi import MpiCommunicator
from hpcgnn.errors import FormatError, GraphError, HpcgnnError, RemoteError

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32)


@pytest.fixture(params=[2.0, 1.0], ids=["polite", "spinning"])
def verbs(request, comm):
    """A communicator of its own with a fresh ledger."""
    communicator = MpiCommunicator(MPI.COMM_WORLD, crowding=request.param)
    yield communicator
    communicator.close()


@pytest.mark.parametrize("background", [True, False], ids=["helper-thread", "no-thread"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.bfloat16, torch.uint8], ids=str)
def test_ring(verbs, dtype, background):
    """Small and large messages (the latter by rendezvous), two in each direction at a time, in order."""
    after, before = (verbs.rank + 1) % verbs.size, (verbs.rank - 1) % verbs.size
    if verbs.size == 1:
        return
    for length in (1, 7, 300_000):
        out = [(torch.arange(length) * 3 + verbs.rank + part).remainder(120).to(dtype) for part in range(2)]
        come = [torch.zeros(length, dtype=dtype) for _ in range(2)]
        under_way = verbs.exchange([(after, t) for t in out], [(before, t) for t in come], "ring")
        if background:
            under_way.progress()
        under_way.finish()
        for part in range(2):
            assert torch.equal(come[part], (torch.arange(length) * 3 + before + part).remainder(120).to(dtype))
    item = torch.empty(0, dtype=dtype).element_size()
    entry = verbs.ledger.take()["ring"]
    assert (entry.messages, entry.bytes_sent, entry.bytes_received) == (6, 2 * 300_008 * item, 2 * 300_008 * item)
    assert entry.seconds_waiting > 0


def test_many_requests_through_the_helper_thread(verbs):
    """Requests handed over, taken back and completed many times: the thread and the rank must never complete the
    same one.
    """
    if verbs.size == 1:
        return
    after, before = (verbs.rank + 1) % verbs.size, (verbs.rank - 1) % verbs.size
    for step in range(200):
        out, come = torch.full((step + 1,), float(step)), torch.empty(step + 1)
        under_way = verbs.exchange([(after, out)], [(before, come)], "x")
        under_way.progress()
        under_way.finish_sending()
        under_way.finish_receiving()
        assert bool((come == step).all())


def test_rows_of_a_matrix_are_sent_in_place(verbs):
    if verbs.size == 1:
        return
    matrix = torch.zeros(6, 4)
    out = torch.full((2, 4), float(verbs.rank))
    before, after = (verbs.rank - 1) % verbs.size, (verbs.rank + 1) % verbs.size
    verbs.exchange([(after, out)], [(before, matrix[2:4])], "x").finish()
    assert (
        bool((matrix[2:4] == (verbs.rank - 1) % verbs.size).all()) and float(matrix[:2].sum() + matrix[4:].sum()) == 0
    )


def test_strided_tensors_are_refused(verbs):
    with pytest.raises(ValueError, match="contiguous"):
        verbs.exchange([], [(0, torch.zeros(4, 4)[:, 1])], "x")
    with pytest.raises(ValueError, match="contiguous"):
        verbs.allreduce_(torch.zeros(4, 4).T, "x")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allreduce(verbs, dtype):
    ranks = torch.arange(verbs.size)
    for op, expected in (("sum", ranks.sum()), ("max", ranks.max()), ("min", ranks.min())):
        tensor = torch.full((3, 5), verbs.rank, dtype=dtype)
        assert verbs.allreduce_(tensor, "reduce", op) is tensor
        assert torch.equal(tensor, torch.full((3, 5), int(expected), dtype=dtype))
    entry = verbs.ledger.take()["reduce"]
    assert (entry.messages, entry.bytes_sent) == (3, 3 * 15 * tensor.element_size())


def test_reductions_are_the_same_on_all_ranks_bit_for_bit(verbs):
    """Ranks whose parameters differ in the last digit drift apart for ever."""
    tensor = torch.rand(10_001, generator=torch.Generator().manual_seed(verbs.rank))
    verbs.allreduce_(tensor, "reduce")
    assert len(set(verbs.allgather_object(tensor.numpy().tobytes()))) == 1


def test_empty_tensors_cost_no_message(verbs):
    assert verbs.allreduce_(torch.empty(0), "x").numel() == 0
    assert verbs.broadcast_(torch.empty(0), 0, "x").numel() == 0
    assert "x" not in verbs.ledger.take()


def test_unknown_type_is_refused(verbs):
    with pytest.raises(ValueError, match="float16"):
        verbs.allreduce_(torch.zeros(2, dtype=torch.float16), "x")


def test_total_leaves_its_argument(verbs):
    tensor = torch.tensor([verbs.rank + 1])
    assert int(verbs.total(tensor)) == verbs.size * (verbs.size + 1) // 2 and int(tensor) == verbs.rank + 1


def test_broadcasts_from_every_root(verbs):
    for root in range(verbs.size):
        tensor = torch.full((4,), float(verbs.rank))
        assert verbs.broadcast_(tensor, root, "x") is tensor and bool((tensor == root).all())
        assert verbs.broadcast_object({"rank": verbs.rank, "text": "ü" * verbs.rank}, root) == {
            "rank": root,
            "text": "ü" * root,
        }


def test_allgather_of_objects_of_unequal_size(verbs):
    assert verbs.allgather_object(list(range(1000 * verbs.rank))) == [
        list(range(1000 * rank)) for rank in range(verbs.size)
    ]
    assert verbs.allgather_object(None) == [None] * verbs.size


def test_together_passes_when_all_are_well(verbs):
    verbs.pulse.at = "before"
    times = 0
    with verbs.together("reading"):
        times += 1
    assert times == 1 and verbs.pulse.at == "reading", "what a rank that is stuck is said to be at"
    assert verbs.allgather_object(verbs.rank) == list(range(verbs.size)), "the ranks are still in step"


def test_an_error_on_one_rank_is_raised_on_all_and_names_it(verbs):
    culprit = verbs.size - 1
    with pytest.raises(HpcgnnError, match="bad label") as caught, verbs.together("reading"):
        if verbs.rank == culprit:
            raise GraphError("bad label")
    assert caught.value.everywhere
    assert type(caught.value) is (GraphError if verbs.rank == culprit else RemoteError)
    if verbs.size > 1:
        assert f"rank {culprit} of {verbs.size}" in str(caught.value) and "reading" in str(caught.value)
    assert verbs.allgather_object(verbs.rank) == list(range(verbs.size)), "the ranks are still in step"


def test_an_error_on_all_ranks_is_said_once_as_it_is(verbs):
    with pytest.raises(FormatError, match="^not a graph$") as caught, verbs.together("reading"):
        raise FormatError("not a graph")
    assert caught.value.everywhere


def test_different_errors_end_with_the_lowest_ranks_words(verbs):
    with pytest.raises(HpcgnnError, match="mistake of rank 0"), verbs.together("reading"):
        raise GraphError(f"mistake of rank {verbs.rank}")


def test_barrier(verbs):
    verbs.barrier()
    assert verbs.ledger.take()["control"].bytes_sent == 0
