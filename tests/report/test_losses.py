"""The loss report of made-up records: what it finds, how large, and that its shares add up to one."""

import json

import pytest

from hpcgnn.report.losses import PARTS, find_losses, loss_lines
from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study

from .conftest import change, write_report

EPOCHS = 10


def part(seconds=0.0, waiting=0.0, off_core=0.0, system=0.0, faults=0, exchanges=0):
    return {
        "seconds": seconds,
        "waiting_seconds": waiting,
        "off_core_seconds": off_core,
        "processor_seconds": seconds - waiting - off_core,
        "system_seconds": system,
        "minor_faults": faults,
        "exchanges": exchanges,
    }


def rank(number, cores=None, nodes=100, edges=1000, rounds=1, **parts):
    return {
        "rank": number,
        "host": f"n{number}",
        "threads": 1,
        "cores": [number] if cores is None else cores,
        "nodes": nodes,
        "edges": edges,
        "rows_computed": [],
        "halo_rounds": rounds,
        "losses": {"epochs": [2, EPOCHS + 1], "parts": parts},
    }


def summary(**schedule):
    return {
        "epochs": EPOCHS + 1,
        "bytes_total": {"halo_forward": 22 * 2**20},
        "kernels": {"native": True},
        "config": {
            "run": {"eval_every": 1, "checkpoint_every": 50, "precision": "fp32"},
            "schedule": {"schedule": "sar", "halo_dtype": "fp32", "halo_buffer": 8.0, **schedule},
        },
    }


def found(*ranks, **schedule):
    losses = find_losses(ranks, summary(**schedule))
    assert sum(losses["parts"].values()) == pytest.approx(1) and losses["parts"].keys() == PARTS.keys()
    assert min(losses["parts"].values()) >= -1e-12
    return losses


def named(losses):
    return [line["name"] for line in losses["lines"]]


def test_nothing_to_gain():
    losses = found(*(rank(n, forward=part(6), backward=part(4, 0.05)) for n in range(2)))
    assert named(losses) == [] and losses["parts"]["work"] == pytest.approx(0.995)
    assert losses["seconds"] == 1.0 and losses["epochs"] == [2, 11]
    assert "nothing to gain" in loss_lines(losses)[-1]


def test_a_slow_rank_is_named_with_its_host():
    """Three ranks wait 6 of 10 seconds for the fourth, which has no more to do than they."""
    losses = found(*(rank(n, forward=part(10, 6)) for n in range(3)), rank(3, forward=part(10, 0)))
    line = losses["lines"][0]
    assert losses["parts"]["imbalance"] == pytest.approx(0.45), "(max - mean) of the work"
    assert losses["parts"]["wait_forward"] == pytest.approx(0), "all waits are explained by it"
    assert line["gain"] == pytest.approx(0.6), "a rank like the others"
    assert "slow rank" in line["title"] and "rank 3 on n3 works 1.82 times" in line["found"]


def test_a_bad_map_is_told_from_a_slow_rank():
    losses = found(rank(0, edges=500, forward=part(10, 5)), rank(1, edges=1500, forward=part(10, 0)))
    line = losses["lines"][0]
    assert "the map" in line["title"] and "1.50 times as many edges" in line["found"]
    assert "--balance" in line["remedy"] and line["gain"] == line["share"] == pytest.approx(0.25)


def test_waits_are_told_by_direction_after_imbalance():
    losses = found(
        *(rank(n, forward=part(4, 2), backward=part(5, 1), reduction=part(1, 1), step=part(0)) for n in range(2)),
        halo_dtype="bf16",
    )
    shares = losses["parts"]
    assert [shares[f"wait_{way}"] for way in ("forward", "backward", "reduction")] == pytest.approx([0.2, 0.1, 0.1])
    assert named(losses)[0] == "wait_forward" and "int8" in losses["lines"][0]["remedy"]
    assert "1 MiB an epoch" in losses["lines"][0]["found"]


def test_ranks_that_send_nothing_wait_for_each_other():
    run = summary(intra_node="shared") | {"bytes_total": {}}
    losses = find_losses([rank(n, forward=part(4, 2), step=part(6)) for n in range(2)], run)
    assert named(losses) == ["wait_forward"] and "nothing is sent" in losses["lines"][0]["found"]
    assert "--balance" in losses["lines"][0]["remedy"]


def test_imbalance_takes_its_part_of_the_waits_first():
    losses = found(rank(0, forward=part(10, 5)), rank(1, forward=part(10, 3)))
    shares = losses["parts"]
    assert (shares["imbalance"], shares["wait_forward"]) == pytest.approx((0.1, 0.3)) and shares["work"] == 0.6


def test_evaluation_and_checkpoints():
    losses = found(rank(0, forward=part(5), evaluation=part(3), checkpoint=part(2)))
    assert named(losses) == ["evaluation", "checkpoints"]
    assert [line["gain"] for line in losses["lines"]] == pytest.approx([0.3, 0.2])
    assert "--eval-every 10" in losses["lines"][0]["remedy"]


def test_shared_cores_take_the_waits_that_they_explain():
    """Two ranks on one core: each works 4 of 10 seconds; with a core of its own it could be done in half the time."""
    losses = found(*(rank(n, cores=[0], forward=part(10, 5, off_core=1)) | {"host": "n"} for n in range(2)))
    shares = losses["parts"]
    assert (shares["work"], shares["shared_cores"], shares["wait_forward"]) == pytest.approx((0.4, 0.5, 0.1))
    line = losses["lines"][0]
    assert line["name"] == "shared_cores" and "2 ranks of 1 thread share 1 core" in line["found"]
    assert line["gain"] == pytest.approx(0.5)


def test_other_processes_on_the_cores():
    losses = found(*(rank(n, forward=part(10, 0, off_core=3)) for n in range(2)))
    assert named(losses) == ["busy_cores"] and losses["lines"][0]["inside"] == "work"
    assert losses["inside"]["busy_cores"] == pytest.approx(0.3)


def test_short_rounds():
    """20,000 exchanges where one round would do with 200: the rest costs its fixed time, but no more than there is."""
    losses = found(*(rank(n, rounds=100, forward=part(10, 0, exchanges=20_000)) for n in range(2)), halo_buffer=0.25)
    line = losses["lines"][0]
    assert line["name"] == "short_rounds" and line["share"] == pytest.approx(20_000 * 0.99 * 2e-4 / 10)
    assert "--halo-buffer 25" in line["remedy"] and "2,000 exchanges an epoch" in line["found"]
    assert not named(found(rank(0, rounds=1, forward=part(10, 0, exchanges=20_000)))), "the fewest that there can be"


def test_page_faults_are_no_more_than_system_time():
    many = part(10, system=4, faults=2_000_000)
    assert found(rank(0, forward=many))["inside"]["page_faults"] == pytest.approx(0.4)
    losses = found(rank(0, forward=part(10, system=4, faults=200_000)))
    assert named(losses) == ["page_faults"] and losses["lines"][0]["share"] == pytest.approx(0.05)


def test_a_run_that_was_done_already():
    assert find_losses([{"losses": {"epochs": [0, 0], "parts": {}}}], summary()) is None


def test_reference_kernels():
    about = summary()
    about["kernels"]["native"] = False
    losses = find_losses([rank(0, forward=part(10))], about)
    assert named(losses) == ["reference_kernels"] and "doctor" in losses["lines"][0]["remedy"]


def test_real_runs_have_one(runs):
    for run in runs("p1-a", "p2-a", "tight-p2"):
        losses = run.summary["losses"]
        assert sum(losses["parts"].values()) == pytest.approx(1) and losses["epochs"] == [2, 5]
        for each in run.ranks:
            for sums in each["losses"]["parts"].values():
                assert all(value >= -1e-6 for value in sums.values())
            assert {"forward", "backward", "evaluation", "checkpoint", "between"} <= each["losses"]["parts"].keys()
        assert json.loads(json.dumps(find_losses(run.ranks, run.summary))) == losses


def test_reports_have_the_tables(copied, tmp_path, drawing_only):
    drawing_only("loss")
    old, new = copied("p1-a"), copied("p2-a")
    change(old, "summary.json", lambda value: value.pop("losses"))
    write_report(build_study(read_runs([old, new])[0]), [], tmp_path / "out")
    table = (tmp_path / "out/losses.md").read_text()
    assert "| p2-a" in table and "| p1-a" not in table, "runs of earlier versions have none"
    assert (tmp_path / "out/remedies.csv").exists() and "What would help" in (tmp_path / "out/report.html").read_text()
