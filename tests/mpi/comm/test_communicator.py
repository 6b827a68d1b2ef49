"""The communicator's verbs, which every transport must pass: received messages equal the sent ones.

The helper thread is on or off, spinning or sleeping. Tests of `verbs` hold for one rank by itself as well, and tests of
`among_ranks` count messages that a single rank never sends.
"""

import pytest
import torch
from mpi4py import MPI

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import FormatError, GraphError, HpcgnnError, RemoteError

from ..transports import TRANSPORTS

pytestmark = [pytest.mark.ranks(2, 3), pytest.mark.processes]

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32)
#: Of everything that is sent: rows as they are and narrowed, row numbers, masks, bytes.
SENT_DTYPES = (*DTYPES, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.bool)
#: Beyond what travels at once: a message of so many numbers waits until its receiver is there.
LARGE = 300_000


def pytest_generate_tests(metafunc):
    """A new transport is one more entry of TRANSPORTS. SoloCommunicator is a transport of one rank alone."""
    if "verbs" in metafunc.fixturenames and metafunc.config.getoption("--transport") != "threads":
        solo = [] if "among_ranks" in metafunc.fixturenames or MPI.COMM_WORLD.size > 1 else ["solo"]
        metafunc.parametrize("verbs", [*TRANSPORTS, *solo], indirect=True)


@pytest.fixture(scope="module")
def of_torch():
    """{name: communicator}: a process group takes longer to make than a test."""
    made = {}
    yield made
    for communicator in made.values():
        communicator.close()


@pytest.fixture
def verbs(request, comm, of_torch):
    """A communicator with a fresh ledger, of its own unless it is of torch."""
    if request.param == "solo":
        communicator = SoloCommunicator()
    elif request.param in ("polite", "spinning"):
        communicator = TRANSPORTS[request.param]()
    else:
        communicator = of_torch.setdefault(request.param, None) or TRANSPORTS[request.param]()
        of_torch[request.param] = communicator
        communicator.ledger.take()
    yield communicator
    if communicator not in of_torch.values():
        communicator.close()


@pytest.fixture
def among_ranks(verbs):
    """`verbs` of ranks, be it one."""
    return verbs


def others(verbs):
    """All ranks but this one, each rank beginning with the next."""
    return [(verbs.rank + offset) % verbs.size for offset in range(1, verbs.size)]


def ring(verbs):
    """(the ranks that a rank sends to, the ranks that it receives from): one each, none where it is alone."""
    after, before = (verbs.rank + 1) % verbs.size, (verbs.rank - 1) % verbs.size
    return ([after], [before]) if verbs.size > 1 else ([], [])


def booked(verbs, kind):
    """(messages, bytes sent, bytes received) since the ledger was last asked."""
    entry = verbs.ledger.take().get(kind)
    return (entry.messages, entry.bytes_sent, entry.bytes_received) if entry else (0, 0, 0)


def numbers(count, sender, mark=0, dtype=torch.int64):
    """The message of a rank in a test: no two messages of a test are alike."""
    return (torch.arange(count) * 7 + 31 * sender + 3 * mark).remainder(120).to(dtype)


def test_many_requests_through_the_helper_thread(verbs):
    """Requests handed over, taken back and completed many times: the thread and the rank must never complete the
    same one. Long lists are looked at in parts.
    """
    to, source = ring(verbs)
    for step in range(200):
        count = 300 if step % 50 == 0 else 1
        out, come = torch.full((step + 1,), float(step)), [torch.empty(step + 1) for _ in range(count)]
        outgoing = [(rank, out) for rank in to for _ in come]
        under_way = verbs.exchange(outgoing, [(rank, each) for rank in source for each in come], "x")
        under_way.progress()
        under_way.finish_sending()
        under_way.finish_receiving()
        assert not source or all(bool((each == step).all()) for each in come)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allreduce(among_ranks, dtype):
    ranks = torch.arange(among_ranks.size)
    for op, expected in (("sum", ranks.sum()), ("max", ranks.max()), ("min", ranks.min())):
        tensor = torch.full((3, 5), among_ranks.rank, dtype=dtype)
        assert among_ranks.allreduce_(tensor, "reduce", op) is tensor
        assert torch.equal(tensor, torch.full((3, 5), int(expected), dtype=dtype))
    assert booked(among_ranks, "reduce")[:2] == (3, 3 * 15 * tensor.element_size())


def test_reductions_are_the_same_on_all_ranks_bit_for_bit(verbs):
    """Ranks whose parameters differ in the last digit drift apart for ever."""
    tensor = torch.rand(10_001, generator=torch.Generator().manual_seed(verbs.rank))
    verbs.allreduce_(tensor, "reduce")
    assert len(set(verbs.allgather_object(tensor.numpy().tobytes()))) == 1


def test_empty_tensors_cost_no_message(verbs):
    assert verbs.allreduce_(torch.empty(0), "x").numel() == 0
    assert verbs.broadcast_(torch.empty(0), 0, "x").numel() == 0
    assert "x" not in verbs.ledger.take()


def test_unknown_type_is_refused(among_ranks):
    with pytest.raises(ValueError, match="float16"):
        among_ranks.allreduce_(torch.zeros(2, dtype=torch.float16), "x")


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


def test_an_error_on_one_rank_is_raised_on_all_and_names_it(verbs):
    culprit = verbs.size - 1
    with pytest.raises(HpcgnnError, match="bad label") as caught, verbs.together("reading"):
        if verbs.rank == culprit:
            raise GraphError("bad label")
    assert verbs.heartbeat.at == "reading", "what a rank that is stuck is said to be at"
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


def test_a_number_for_each_rank(verbs):
    verbs.ledger.take()
    for call in range(3):
        came = verbs.alltoall(torch.tensor([1000 * call + 10 * verbs.rank + to for to in range(verbs.size)]), "plan")
        assert came.tolist() == [1000 * call + 10 * source + verbs.rank for source in range(verbs.size)]
    if verbs.size > 1:
        assert booked(verbs, "plan") == (3, *[3 * 8 * verbs.size] * 2)


def test_barrier(among_ranks):
    among_ranks.barrier()
    assert among_ranks.ledger.take()["control"].bytes_sent == 0


# --- exchanges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SENT_DTYPES, ids=str)
def test_everything_that_is_sent_arrives_to_the_bit(verbs, dtype):
    """As matrices and as rows, in messages that travel at once and in messages that wait for their receiver."""
    for shape in ((5,), (3, 7), (LARGE, 1)):
        count = torch.Size(shape).numel()
        to, source = ring(verbs)
        outgoing = [(rank, numbers(count, verbs.rank, dtype=dtype).view(shape)) for rank in to]
        incoming = [(rank, torch.zeros(shape, dtype=dtype)) for rank in source]
        verbs.exchange(outgoing, incoming, "rows").finish()
        for rank, found in incoming:
            expected = numbers(count, rank, dtype=dtype).view(shape)
            assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("background", [True, False], ids=["helper-thread", "no-thread"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)], ids=str)
def test_messages_of_a_kind_arrive_in_the_order_in_which_they_were_sent(verbs, order, background):
    """Whatever their sizes, and however the exchanges are finished."""
    to, source = ring(verbs)
    sizes, arrived, under_way = (LARGE, 3, LARGE // 2, 3), [], []
    for mark, size in enumerate(sizes):
        out = numbers(size, verbs.rank, mark)
        arrived.append(torch.zeros(size, dtype=torch.int64))
        exchange = verbs.exchange([(rank, out) for rank in to], [(rank, arrived[-1]) for rank in source], "rows")
        if background:
            exchange.progress()
        under_way.append(exchange)
    for mark in order:
        under_way[mark].finish()
    for mark, (size, found) in enumerate(zip(sizes, arrived)):
        for rank in source:
            assert torch.equal(found, numbers(size, rank, mark)), f"message {mark}"


def test_messages_of_another_kind_do_not_take_their_place(verbs):
    """The receiver asks for the kinds of a step in the other order: all have one size, so only the kind differs."""
    if not verbs.pairwise:
        pytest.skip("all ranks take part in an exchange")
    to, source = ring(verbs)
    kinds = ["halo_forward", "halo_backward", "plan", "input", "evaluation", "control"]
    sending = [
        verbs.exchange([(rank, numbers(50, verbs.rank, mark)) for rank in to], [], kind)
        for mark, kind in enumerate(kinds)
    ]
    for mark, kind in reversed(list(enumerate(kinds))):
        found = torch.zeros(50, dtype=torch.int64)
        verbs.exchange([], [(rank, found) for rank in source], kind).finish()
        for rank in source:
            assert torch.equal(found, numbers(50, rank, mark)), kind
    for exchange in sending:
        exchange.finish()


def test_many_peers_at_once(verbs):
    """All to all, of sizes that depend on both ends, some of them 0."""

    def size(sender, receiver):
        return (sender * 5 + receiver * 3) % 4 * (1 if (sender + receiver) % 2 else LARGE // 4)

    def marked(sender, receiver):
        return numbers(size(sender, receiver), sender, receiver)

    incoming = [(rank, torch.zeros(size(rank, verbs.rank), dtype=torch.int64)) for rank in reversed(others(verbs))]
    exchange = verbs.exchange([(rank, marked(verbs.rank, rank)) for rank in others(verbs)], incoming, "all")
    exchange.progress()
    exchange.finish()
    for rank, found in incoming:
        assert torch.equal(found, marked(rank, verbs.rank))
    sent = sum(8 * size(verbs.rank, rank) for rank in others(verbs))
    received = sum(8 * size(rank, verbs.rank) for rank in others(verbs))
    assert booked(verbs, "all") == (verbs.size - 1, sent, received)


@pytest.mark.parametrize("background", [True, False], ids=["helper-thread", "no-thread"])
def test_what_was_sent_may_be_written_to_after_finish_sending_alone(verbs, background):
    to, source = ring(verbs)
    for size in (5, LARGE):
        out, come = numbers(size, verbs.rank), torch.zeros(size, dtype=torch.int64)
        exchange = verbs.exchange([(rank, out) for rank in to], [(rank, come) for rank in source], "rows")
        if background:
            exchange.progress()
        exchange.finish_sending()
        out.fill_(-1)
        exchange.finish_receiving()
        for rank in source:
            assert torch.equal(come, numbers(size, rank))
        exchange.finish()  # a second time costs nothing
        exchange.finish_sending()


def test_strided_messages_are_refused_before_anything_is_sent(among_ranks):
    """Either way; and the ledger does not count unsent messages."""
    matrix, peer = torch.zeros(4, 4), (among_ranks.rank + 1) % among_ranks.size
    for outgoing, incoming in (([(peer, matrix[:, 1])], []), ([], [(peer, matrix.T[:2])])):
        with pytest.raises(ValueError, match="contiguous"):
            among_ranks.exchange(outgoing, incoming, "rows")
    with pytest.raises(ValueError, match="contiguous"):
        among_ranks.allreduce_(matrix.T, "rows")
    assert "rows" not in among_ranks.ledger.take()
    assert among_ranks.allgather_object(among_ranks.rank) == list(range(among_ranks.size))


# --- prepared exchanges -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False], ids=["helper-thread", "no-thread"])
def test_prepared_messages_are_begun_again_and_again(verbs, background):
    """Each time with other numbers, two to each peer, in order; and each time counted as an exchange of them."""
    to, source = ring(verbs)
    sizes = (LARGE, 5, 0)
    outgoing = [(rank, torch.zeros(size, dtype=torch.int64)) for rank in to for size in sizes]
    incoming = [(rank, torch.zeros(size, dtype=torch.int64)) for rank in source for size in sizes]
    begin = verbs.prepare(outgoing, incoming, "rows")
    for turn in range(5):
        for mark, (_, tensor) in enumerate(outgoing):
            tensor.copy_(numbers(len(tensor), verbs.rank, 10 * turn + mark))
        under_way = begin()
        if background:
            under_way.progress()
        under_way.finish()
        for mark, (rank, found) in enumerate(incoming):
            assert torch.equal(found, numbers(len(found), rank, 10 * turn + mark)), (turn, mark)
        assert booked(verbs, "rows") == (len(outgoing), *[sum(tensor.nbytes for _, tensor in outgoing)] * 2)


def test_prepared_and_other_messages_of_a_kind_keep_one_order(verbs):
    """Two prepared exchanges and one other, all of one kind and size, under way at once for the same peers.

    One end prepares exchanges that the other sends one by one.
    """
    to, source = ring(verbs)

    def made():
        outgoing = [(rank, torch.zeros(7, dtype=torch.int64)) for rank in to for _ in range(2)]
        return outgoing, [(rank, torch.zeros(7, dtype=torch.int64)) for rank in source for _ in range(2)]

    pairs = [made() for _ in range(3)]
    prepared = [verbs.prepare(*pair, "rows") for pair in pairs[: 2 if verbs.rank % 2 else 1]]
    for turn in range(6):
        under_way = []
        for number, (outgoing, incoming) in enumerate(pairs):
            for mark, (_, tensor) in enumerate(outgoing):
                tensor.copy_(numbers(7, verbs.rank, 2 * (3 * turn + number) + mark))
            whole = number < len(prepared)
            under_way.append(prepared[number]() if whole else verbs.exchange(outgoing, incoming, "rows"))
            under_way[-1].progress()
        for each in reversed(under_way):
            each.finish()
        for number, (_, incoming) in enumerate(pairs):
            for mark, (rank, found) in enumerate(incoming):
                assert torch.equal(found, numbers(7, rank, 2 * (3 * turn + number) + mark)), (turn, number, mark)


# --- objects ----------------------------------------------------------------------------------------------------------


def test_together_sends_a_flag_and_texts_only_after_a_failure(among_ranks, monkeypatch):
    verbs, texts, allgather = among_ranks, [], type(among_ranks).allgather_object

    def counted(self, value):
        texts.append(value)
        return allgather(self, value)

    monkeypatch.setattr(type(verbs), "allgather_object", counted)
    verbs.ledger.take()
    for _ in range(3):
        with verbs.together("reading"):
            pass
    entry = verbs.ledger.take()["control"]
    assert (entry.messages, entry.bytes_sent, texts) == (3, 3 * 8, [])
    with pytest.raises(HpcgnnError, match="bad label"), verbs.together("reading"):
        if verbs.rank == verbs.size - 1:
            raise GraphError("bad label")
    assert len(texts) == 1
