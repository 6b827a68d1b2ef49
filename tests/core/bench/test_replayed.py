"""An epoch replayed turn by turn (jobs/bench/many_ranks/replayed.py): small cases whose seconds follow by hand."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..forked import start

BENCH = Path(__file__).parents[3] / "jobs" / "bench" / "many_ranks"
sys.path.append(str(BENCH))
from replayed import Links, Passage, Troubles, epoch_seconds  # noqa: E402

FREE = Links(latency=0.0, bandwidth=np.inf, ranks=1, message=0.0, byte=0.0)


def passage(receiver, sender, there, back=0):
    there = np.asarray(there, np.int64)
    return Passage(np.asarray(receiver), np.asarray(sender), there, np.zeros_like(there) + back)


BOTH_WAYS = passage([0, 1], [1, 0], [1000, 1000])


def test_without_messages_an_epoch_is_the_work_of_the_slowest():
    work = np.array([3.0, 5.0, 4.0])
    assert epoch_seconds([[], []], work, FREE, 0.5) == pytest.approx(5.5)
    assert epoch_seconds([[], []], work, FREE, 0.5, Troubles(straggler=2.0)) == pytest.approx(6.5)


def test_messages_hide_behind_own_edges():
    """One stream of one turn: half of the work is own edges, and the rows are under way meanwhile."""
    work = np.array([2.0, 2.0])
    links = Links(latency=0.1, bandwidth=1e4, ranks=1, message=0.0, byte=0.0)  # 0.1 s and 0.1 s for 1,000 bytes
    assert epoch_seconds([[BOTH_WAYS]], work, links, 0.0) == pytest.approx(2.0)
    slow = Links(latency=0.1, bandwidth=500.0, ranks=1, message=0.0, byte=0.0)  # 2 s: 1.1 s more than there is to do
    assert epoch_seconds([[BOTH_WAYS]], work, slow, 0.0) == pytest.approx(0.1 + 2.0 + 1.0)


def test_within_a_node_nothing_takes_time_and_ranks_of_a_node_share_its_link():
    work = np.full(4, 2.0)
    links = Links(latency=0.0, bandwidth=250.0, ranks=2, message=0.0, byte=0.0)
    near = passage([0, 1, 2, 3], [1, 0, 3, 2], [1000] * 4)
    assert epoch_seconds([[near]], work, links, 0.0) == pytest.approx(2.0)
    far = passage([0, 1, 2, 3], [2, 3, 0, 1], [1000] * 4)  # 2,000 bytes each way on each link
    assert epoch_seconds([[far]], work, links, 0.0) == pytest.approx(8.0 + 1.0)


def test_a_rank_waits_for_the_one_whose_rows_it_needs():
    """Rank 1 has nothing to do, but needs rows that rank 0 sends only when its first stream is through."""
    work = np.array([4.0, 0.0])
    only = passage([1], [0], [1000])
    assert epoch_seconds([[], [only]], work, FREE, 0.0) == pytest.approx(4.0)
    links = Links(latency=3.0, bandwidth=np.inf, ranks=1, message=0.0, byte=0.0)
    assert epoch_seconds([[], [only]], work, links, 0.0) == pytest.approx(4 / 3 + 3.0)


def test_processor_seconds_of_messages_and_what_goes_back():
    work = np.array([2.0, 2.0])
    links = Links(latency=0.0, bandwidth=np.inf, ranks=1, message=0.01, byte=0.0)
    assert epoch_seconds([[BOTH_WAYS]], work, links, 0.0) == pytest.approx(2.02)  # one out, one in
    links = Links(latency=0.0, bandwidth=np.inf, ranks=1, message=0.0, byte=1e-5)
    assert epoch_seconds([[BOTH_WAYS]], work, links, 0.0) == pytest.approx(2.02)
    begun = Links(latency=0.0, bandwidth=np.inf, ranks=1, message=0.0, byte=0.0, exchange=0.3)
    assert epoch_seconds([[BOTH_WAYS]], work, begun, 0.0) == pytest.approx(2.3), "begun together, once"
    back = passage([0, 1], [1, 0], [1000, 1000], back=1000)
    late = Links(latency=0.5, bandwidth=np.inf, ranks=1, message=0.0, byte=0.0)
    assert epoch_seconds([[back]], work, late, 0.0) == pytest.approx(2.0 + 0.5)


def test_chance_is_the_same_for_the_same_seed():
    work = np.full(8, 1.0)
    one, again, other = (epoch_seconds([[]] * 4, work, FREE, 0.0, Troubles(noise=0.1), seed) for seed in (1, 1, 2))
    assert one == again != other and one > 1.0


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "g.h5"
    generate_graph("planted", path, Spec(nodes=3000, degree=8, features=8, classes=4, seed=1))
    partition_graph(path, [4, 32], num_clusters=128)
    return path


def table_of(script, graph, *more):
    out = graph.with_suffix(f".{script}.csv")
    done = start(0, BENCH / f"{script}.py", "--graph", graph, "--ranks", "4,32", "--out", out, *more)
    assert done.code == 0, done.err
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(out.read_text().splitlines())]


def test_many_ranks_are_made_one_after_another(graph):
    few, many = table_of("many_ranks", graph, "--width", "16", "--halo-buffer", "1")
    assert (few["ranks"], many["ranks"], few["peers"]) == (4, 32, 3)
    assert many["halo rows"] < few["halo rows"] <= few["halo rows, largest"] <= 3000
    assert few["rounds"] >= few["alone"] >= 1 and few["messages"] >= few["peers"]
    assert many["buffers, largest"] <= 1


def test_one_thread_begins_messages_however_many_there_are(graph, tmp_path):
    """Of 2 threads or of 72, what messages add is the same; and they add what each is said to take."""
    machine, latency = BENCH.parents[1] / "machines" / "icelake-hdr.toml", {}
    for threads in (2, 72):
        other = tmp_path / f"{threads}.toml"
        other.write_text(machine.read_text().replace("threads = 72", f"threads = {threads}").replace("zen3", "./zen3"))
        (tmp_path / "zen3-2-cores.toml").write_text((machine.parent / "zen3-2-cores.toml").read_text())
        for message in ("0", "1e-3"):
            more = ("--machine", str(other), "--message", message, "--", "--hidden", "16")
            latency[threads, message] = table_of("where_scaling_ends", graph, *more)[1]
    added = [latency[threads, "1e-3"]["latency"] - latency[threads, "0"]["latency"] for threads in (2, 72)]
    each = latency[2, "0"]["messages of a rank"]
    assert added == pytest.approx([1e-3 * each] * 2, rel=0.3)


def test_where_scaling_ends(graph):
    machine = BENCH.parents[1] / "machines" / "icelake-hdr.toml"
    for row in table_of("where_scaling_ends", graph, "--machine", str(machine), "--", "--hidden", "16"):
        times = [row[name] for name in ("imbalance", "latency", "links", "noise", "straggler")]
        assert 0 < times[0] <= times[1] <= times[2] < times[4] and times[0] < times[3] < times[4]
