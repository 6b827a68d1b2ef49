"""What epochs took, by part: every second is of one part; waits and time without a core are told apart from work."""

import time

import pytest

from hpcgnn.comm.health.heartbeat import Heartbeat
from hpcgnn.comm.ledger import Ledger
from hpcgnn.engine.clock import PHASES, Clock, unwatched
from hpcgnn.engine.tally import Tally

PAUSE = 0.02


def epochs(tally, clock, *numbers):
    for number in numbers:
        with tally.epoch(number):
            for phase in PHASES:
                with clock(phase):
                    time.sleep(PAUSE)
            time.sleep(PAUSE)
            with tally.part("checkpoint"):
                time.sleep(PAUSE)


def counted(*numbers):
    tally = Tally()
    epochs(tally, Clock(unwatched, Heartbeat(), tally), *numbers)
    return tally.record()


def test_every_second_is_of_one_part():
    start = time.perf_counter()
    record = counted(1)
    whole = time.perf_counter() - start
    parts = record["parts"]
    assert record["epochs"] == [1, 1] and parts.keys() == {*PHASES, "checkpoint", "between"}
    seconds = [part["seconds"] for part in parts.values()]
    assert min(seconds) >= PAUSE and 6 * PAUSE <= sum(seconds) <= whole


def test_the_first_epoch_counts_only_alone():
    assert counted(7)["epochs"] == [7, 7], "the first of a run that goes on"
    record = counted(1, 2, 3)
    assert record["epochs"] == [2, 3] and record["parts"]["forward"]["seconds"] >= 2 * PAUSE
    assert counted()["parts"] == {}


def test_a_rank_that_sleeps_has_no_core_and_one_that_computes_has():
    tally = Tally()
    with tally.part("asleep"):
        time.sleep(0.2)
    with tally.part("at work"):
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass
    parts = tally.record()["parts"]
    assert parts["asleep"]["off_core_seconds"] >= 0.15 > parts["asleep"]["processor_seconds"]
    assert parts["at work"]["processor_seconds"] >= 0.15
    work = parts["at work"]["seconds"] - parts["at work"]["off_core_seconds"]
    assert work == pytest.approx(0.2, abs=0.05), "whatever else the machine does"


def test_waits_are_no_work_whether_they_spin_or_sleep():
    ledger = Ledger()
    tally = Tally(ledger)
    with tally.part("forward"):
        time.sleep(0.1)
        ledger.add("halo_forward", seconds_waiting=0.1)
    with tally.part("backward"):
        start, end = time.thread_time(), time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        ledger.add("halo_backward", seconds_waiting=0.1)
        ledger.seconds_waited_on_core += time.thread_time() - start
    for part in tally.record()["parts"].values():
        assert part["waiting_seconds"] == pytest.approx(0.1)
        assert part["off_core_seconds"] <= part["seconds"] - 0.1 + 0.02
