"""Seconds of an epoch from work and rates: who waits for whom, and what that takes of processors."""

from dataclasses import replace

import numpy as np
import pytest

from hpcgnn.config import make_config
from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.counts.sources import AssumedGraph
from hpcgnn.estimate.counts.traffic import Traffic
from hpcgnn.estimate.seconds import PARALLEL, seconds
from hpcgnn.estimate.trial.operations import Operation
from hpcgnn.plan.choices import registry_choices

from ..machines import made_up

RANKS, EACH = 4, 2e-8  # seconds of a row of made_up's products
MEAN, MOST = 10_000_000, 25_000_000
# Of made_up's network: the last collective of an epoch, in log2(4) steps of a latency and a message.
MEETING = 2 * (2e-6 + 1e-6)


def forecast(**options):
    """Of ranks of which one has more to multiply than the others, and nobody anything else."""
    config = make_config({"graph": "none", "model": "gcn", "hidden": 8, **options}, registry_choices())
    found = AssumedGraph(Stats(2000, 8000, 8, 4), 0.3, 0.5).forecast(config, RANKS)

    def rank(rows):
        return replace(found.mean, work={Operation("multiply", "fp32", 64, 64): np.array([0.0, rows, 0.0])})

    return replace(found, mean=rank(MEAN), busiest=rank(MEAN), largest=rank(MOST), halo={}, others={})


def of(cores, found=None, **machine):
    return seconds(found or forecast(), made_up(cores=cores, ranks=RANKS, threads=1, **machine))


def test_all_wait_for_the_slowest_of_them():
    """Who waits for MPI takes its core meanwhile, and who waits for torch.distributed does not."""
    found = of(RANKS)
    assert found.epoch == pytest.approx(MOST * EACH + MEETING)
    assert found.cpu == pytest.approx(RANKS * (MOST * EACH + MEETING))
    assert found.parts["imbalance"] == pytest.approx((MOST - MEAN) * EACH)
    assert of(RANKS, forecast(comm="torch")).cpu == pytest.approx(RANKS * MEAN * EACH)


@pytest.mark.parametrize("cores", [1, 2])
def test_a_message_waits_for_a_core(cores):
    """Up to twice as long as where each rank has one."""
    found, sent = forecast(), np.full(RANKS, 1000)
    halo = {"halo_forward": Traffic(np.zeros(RANKS, np.int64), sent)}
    each = made_up().network.cpu_seconds_per_message
    more = of(cores, replace(found, halo=halo)).cpu - of(cores, found).cpu
    assert each > 0 and more == pytest.approx(sent.sum() * each * (2 - cores / RANKS))


def test_ranks_that_share_cores_share_them_evenly():
    """Until the others are done: the slowest then has one for itself."""
    others = (RANKS * MEAN - MOST) / (RANKS - 1)
    for cores in (1, 2):
        found = of(cores)
        assert found.epoch == pytest.approx((others * RANKS / cores + MOST - others) * EACH + MEETING)
        assert found.cpu == pytest.approx(RANKS * MEAN * EACH)
    assert of(1).epoch == pytest.approx(RANKS * MEAN * EACH + MEETING), "one core is never idle"


def test_one_rank_waits_for_nobody_however_many_threads_it_has():
    one = replace(forecast(), shares=replace(forecast().shares, nodes=np.array([2000])))
    assert one.shares.ranks == 1
    found = seconds(one, made_up(cores=2, ranks=1, threads=8, second_thread=1.0))
    assert found.parts["imbalance"] == 0 and found.epoch == pytest.approx(MEAN * EACH / 2)


def test_cores_that_have_nothing_to_do_leave_their_memory_to_others():
    assert of(RANKS, alone=0.5).epoch == of(RANKS).epoch
    busy = of(RANKS).epoch - MEETING
    assert of(2 * RANKS - 1, alone=0.5).epoch - MEETING == pytest.approx(busy * 0.75)
    assert of(1_000_000, alone=0.5).epoch - MEETING == pytest.approx(busy * 0.5, rel=1e-4)


def test_layers_take_some_time_besides():
    layers = make_config({"graph": "none", "model": "gcn"}, registry_choices()).model.layers
    assert of(RANKS, layer=0.25).epoch - of(RANKS).epoch == pytest.approx(0.25 * layers)


CALL, LAYER, WAKE, SPEED = 3e-4, 2e-3, 5e-5, 6.0
CALLS, SMALL_CALLS, LARGE_CALLS, SHARED_BYTES = 700, 90, 40, 1e9
RATES = {"call": CALL, "layer": LAYER, "wake": [[8, WAKE]], "speed": [[2, 1.9], [8, SPEED]]}


def with_calls(found):
    """The same rows in many calls, and calls of torch with few bytes and with many."""
    work = {
        Operation("multiply", "fp32", 64, 64): np.array([CALLS, MEAN, 0.0]),
        Operation("torch", "small"): np.array([SMALL_CALLS, 0.0, SMALL_CALLS * 64.0]),
        Operation("torch", "large"): np.array([LARGE_CALLS, 0.0, SHARED_BYTES]),
    }
    rank = replace(found.mean, work=work)
    return replace(found, mean=rank, busiest=rank, largest=rank)


def on_threads(threads, found, **machine):
    """On four nodes' worth of cores, so that none is shared."""
    values = RATES | machine
    return seconds(found, made_up(cores=RANKS * 8, ranks=RANKS, threads=threads, torch_byte=2e-10, **values))


@pytest.mark.parametrize("threads, speed, wake", [(1, 1.0, 0.0), (2, 1.9, WAKE / 7), (8, SPEED, WAKE)])
def test_threads_share_the_work_of_kernels_and_nothing_else(threads, speed, wake):
    """Calls, layers, wake-ups and small operations of torch are of one thread, and take as long on eight."""
    found = with_calls(forecast())
    layers = found.experiment.spec.layers
    told = on_threads(threads, found)
    serial = CALLS * (CALL + wake) + LARGE_CALLS * wake + layers * LAYER + SMALL_CALLS * 64 * 2e-10
    assert told.parts["serial"] == pytest.approx(serial)
    assert told.parts["products"] == pytest.approx(MEAN * EACH / speed)
    assert told.parts["others"] == pytest.approx(SHARED_BYTES * 2e-10 / speed)
    assert told.parts["imbalance"] == pytest.approx(0, abs=1e-12)
    assert told.epoch == pytest.approx(serial + sum(told.parts[name] for name in PARALLEL) + MEETING)


@pytest.mark.parametrize("threads", [1, 8])
def test_one_thread_begins_messages_and_copies_them(threads):
    found, sent, size = forecast(), np.full(RANKS, 1000), np.full(RANKS, 10**9)
    network = made_up().network
    halo = {"halo_forward": Traffic(size, sent, exchanges=30)}
    network = replace(network, cpu_seconds_per_exchange=4e-5, collective_step=MEETING / 2)
    told = on_threads(threads, replace(found, halo=halo), network=network)
    expected = 1000 * network.cpu_seconds_per_message + 1e9 * network.cpu_seconds_per_byte + 30 * 4e-5
    assert told.parts["messages"] == pytest.approx(expected)


@pytest.mark.parametrize("threads", [1, 8])
def test_collectives_are_meetings_of_all_ranks(threads):
    """Each takes log2(P) steps; the bytes of a sum are added by one thread."""
    found, calls, size = forecast(), 5, 10**8
    plain, network = on_threads(threads, found), made_up().network
    told = on_threads(threads, replace(found, others={"allreduce": (calls, size)}))
    more = told.parts["reduction"] - plain.parts["reduction"]
    assert plain.parts["reduction"] == pytest.approx(MEETING)
    assert more == pytest.approx(calls * MEETING + size * network.summing(RANKS))
    measured = replace(network, collective_step=7e-6)
    told = on_threads(threads, replace(found, others={"allreduce": (calls, 0)}), network=measured)
    assert told.parts["reduction"] == pytest.approx((calls + 1) * 2 * 7e-6)


def test_a_watchdog_takes_its_share_of_every_second():
    plain, watched = (on_threads(8, with_calls(forecast()), watchdog=share) for share in (0.0, 0.02))
    assert watched.epoch == pytest.approx(1.02 * plain.epoch)
    assert watched.parts["serial"] - plain.parts["serial"] == pytest.approx(0.02 * plain.epoch)


def test_where_ranks_share_cores_one_thread_of_each_may_still_have_its_own():
    """Four ranks of eight threads on eight cores: kernels share them, calls do not."""
    found = with_calls(forecast())
    told = seconds(found, made_up(cores=8, ranks=RANKS, threads=8, **RATES))
    serial = CALLS * (CALL + WAKE) + LARGE_CALLS * WAKE + found.experiment.spec.layers * LAYER
    serial += SMALL_CALLS * 64 * 2e-10
    assert told.parts["serial"] == pytest.approx(serial)
    assert told.parts["products"] == pytest.approx(MEAN * EACH / SPEED * RANKS)


def test_the_curve_of_one_rank_holds_where_a_node_has_one():
    one = replace(forecast(), shares=replace(forecast().shares, nodes=np.array([2000])))
    curves = {"speed": [[8, 3.0]], "speed_alone": [[8, 7.0]]}
    for ranks, speed in ((1, 7.0), (RANKS, 3.0)):
        found = one if ranks == 1 else forecast()
        told = seconds(found, made_up(cores=64, ranks=ranks, threads=8, **curves))
        assert told.parts["products"] == pytest.approx(MEAN * EACH / speed)


def test_what_was_assumed_is_said():
    found = forecast()
    curve = {"speed": [[1, 1.0], [8, 6.0]], "wake": [[8, 1e-5]]}
    assert seconds(found, made_up(threads=8, cores=64, **curve)).assumed == []
    (said,) = seconds(found, made_up(threads=16, cores=64, **curve)).assumed
    assert said == "16 threads are as fast as 8, the most of the thread curve (speed)"
    said = seconds(found, made_up(threads=8, cores=64, second_thread=0.4)).assumed
    assert said == [
        "each thread after the first adds 0.4 of its speed (second_thread)",
        "waking the threads takes no time (wake)",
    ]
    assert seconds(found, made_up(threads=1)).assumed == []
