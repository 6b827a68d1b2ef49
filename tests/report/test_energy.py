"""Energy in reports: joules where a run has them, what they cover, and why others have none."""

import math

from hpcgnn.report.read import read_runs
from hpcgnn.report.study import build_study
from hpcgnn.report.tables import make_tables

from .conftest import change, summary

COVERS = "processors and memory: all that ran on these nodes"
COLUMN = "energy per epoch (J)"


def cost(paths):
    found, broken = read_runs(paths)
    assert not broken
    return next(table for table in make_tables(build_study(found)) if table.name == "cost")


def energy(path, value):
    change(path, "summary.json", lambda said: said.update(energy=value))
    return path


def test_joules_stand_in_the_table_of_costs(copied):
    paths = [
        energy(copied(name), {"joules": joules, "joules_per_epoch": joules / 4, "nodes": 1, "covers": COVERS})
        for name, joules in (("p2-a", 40.0), ("p2-b", 80.0))
    ]
    table = cost(paths)
    assert table.rows[0][table.head.index(COLUMN)] == "15.0 [10.0, 20.0]"
    assert table.frame["joules_per_epoch"].tolist() == [15.0] and f"Energy is of {COVERS}." in table.note


def test_what_runs_really_say_here(copied):
    """The reason of the machine of the tests, or its joules: one of both, never neither."""
    path = copied("p2-a")
    said, table = summary(path)["energy"], cost([path])
    if said["joules"] is None:
        assert COLUMN not in table.head and f"Energy: {said['reason']}." in table.note
        assert math.isnan(table.frame["joules_per_epoch"][0])
    else:
        assert COLUMN in table.head and said["covers"] in table.note


def test_some_runs_without_and_runs_of_before(copied):
    known = energy(copied("p2-a"), {"joules": 4.0, "joules_per_epoch": 1.0, "nodes": 1, "covers": COVERS})
    older = copied("p2-b")
    change(older, "summary.json", lambda said: said.pop("energy"))
    table = cost([known, older])
    assert table.rows[0][table.head.index(COLUMN)].startswith("1.00")
    assert "Energy (1 of 2 runs): not recorded by the version that wrote them." in table.note
    assert "nergy" not in cost([older]).note
