"""Seconds of an epoch from work and rates: who waits for whom, and what that takes of processors."""

from dataclasses import replace

import numpy as np
import pytest

from hpcgnn.config import make_config
from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.operations import Operation
from hpcgnn.estimate.seconds import seconds
from hpcgnn.estimate.sources import AssumedGraph
from hpcgnn.estimate.traffic import Traffic
from hpcgnn.train.choices import registry_choices

from .machines import made_up

RANKS, EACH = 4, 2e-8  # seconds of a row of made_up's products
MEAN, MOST = 10_000_000, 25_000_000


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
    assert found.epoch == pytest.approx(MOST * EACH) and found.cpu == pytest.approx(RANKS * MOST * EACH)
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
        assert found.epoch == pytest.approx((others * RANKS / cores + MOST - others) * EACH)
        assert found.cpu == pytest.approx(RANKS * MEAN * EACH)
    assert of(1).epoch == pytest.approx(RANKS * MEAN * EACH), "one core is never idle"


def test_one_rank_waits_for_nobody_however_many_threads_it_has():
    one = replace(forecast(), shares=replace(forecast().shares, nodes=np.array([2000])))
    assert one.shares.ranks == 1
    found = seconds(one, made_up(cores=2, ranks=1, threads=8, second_thread=1.0))
    assert found.parts["imbalance"] == 0 and found.epoch == pytest.approx(MEAN * EACH / 2)


def test_cores_that_have_nothing_to_do_leave_their_memory_to_others():
    assert of(RANKS, alone=0.5).epoch == of(RANKS).epoch
    assert of(2 * RANKS - 1, alone=0.5).epoch == pytest.approx(of(RANKS).epoch * 0.75)
    assert of(1_000_000, alone=0.5).epoch == pytest.approx(of(RANKS).epoch * 0.5, rel=1e-4)


def test_layers_take_some_time_besides():
    layers = make_config({"graph": "none", "model": "gcn"}, registry_choices()).model.layers
    assert of(RANKS, layer=0.25).epoch - of(RANKS).epoch == pytest.approx(0.25 * layers)
