"""Edges that are sorted in files are those that are sorted in memory, bit for bit, whatever the sizes of the pieces."""

import resource

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import count_types
from partition_tools.canonical.typed import with_reverse
from partition_tools.graph.edges import canonical_edges
from partition_tools.out_of_core import sorting
from partition_tools.out_of_core.edges import EdgeChunks, external_edges
from partition_tools.out_of_core.records import Records
from partition_tools.out_of_core.sorting import Runs, in_order
from partition_tools.workspace.scratch import Scratch


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """A run is a handful of edges, so that graphs of a test need many runs and ranges."""
    monkeypatch.setattr(sorting, "MOST_RUN", 11)
    monkeypatch.setattr(sorting, "MOST_RANGE", 7)


def random_edges(seed, n, count, weighted, typed, symmetric):
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, n, (2, count)) if count else np.zeros((2, 0), np.int64)
    weight = random.choice(np.array([-1, -0.0, 0.0, 0.5, 1.25, 3], np.float32), count) if weighted else None
    kind = random.integers(0, 3, count).astype(np.int32) if typed else None
    if symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        weight, kind = (None if a is None else np.concatenate([a, a]) for a in (weight, kind))
    return src, dst, kind, weight


def sources(n, src, dst, kind, weight, add_reverse=False, featured=False):
    def chunk(start, stop):
        there = slice(start, stop)
        return src[there], dst[there], *(None if a is None else a[there] for a in (kind, weight))

    given = kind is not None, weight is not None, count_types(kind), add_reverse, featured
    return EdgeChunks(len(src), n, chunk, *given)


def same_edges(one, other):
    if one is None or other is None:
        assert one is other
        return
    for name in ("indptr", "indices", "weight", "type", "row"):
        a, b = getattr(one, name), getattr(other, name)
        if a is None or b is None:
            assert a is b
        else:
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), name


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 9),
    count=st.integers(0, 90),
    weighted=st.booleans(),
    typed=st.booleans(),
    symmetric=st.booleans(),
    undirected=st.booleans(),
    self_loops=st.sampled_from(["keep", "add", "remove"]),
    drop_duplicates=st.booleans(),
    add_reverse=st.booleans(),
    featured=st.booleans(),
)
def test_the_same_edges_as_in_memory(
    tmp_path_factory,
    seed,
    n,
    count,
    weighted,
    typed,
    symmetric,
    undirected,
    self_loops,
    drop_duplicates,
    add_reverse,
    featured,
):
    src, dst, kind, weight = random_edges(seed, n, count, weighted, typed, symmetric)
    add_reverse = add_reverse and typed
    featured = featured and self_loops != "add"
    row = np.arange(count := len(src)) if featured else None
    source = sources(n, src, dst, kind, weight, add_reverse, featured)
    num_types = source.num_types
    if add_reverse:
        src, dst, weight, kind = with_reverse(src, dst, weight, kind, num_types)
        num_types *= 2
        row = np.arange(2 * count) % count if featured else None
    wanted = undirected, self_loops, drop_duplicates
    expected = canonical_edges(src, dst, n, weight, kind, *wanted, num_types=num_types, row=row)
    scratch = Scratch(tmp_path_factory.mktemp("work"), [seed], 1 << 20)
    found = external_edges(source, scratch, undirected, self_loops, drop_duplicates)
    same_edges(expected[0], found[0])
    same_edges(expected[1], found[1])
    assert expected[2] == found[2]


@pytest.mark.parametrize("featured", [False, True])
def test_parallel_edges_are_merged_with_the_same_rounding(tmp_path, featured):
    """Means of weights depend on the order of the sum: many parallel edges of one pair, in both directions."""
    random = np.random.default_rng(1)
    src = np.repeat([0, 1], [40, 31])
    weight = (random.standard_normal(71) * 10.0 ** random.integers(-6, 6, 71)).astype(np.float32)
    row = np.arange(71) if featured else None
    expected = canonical_edges(src, 1 - src, 2, weight, undirected=True, row=row)
    scratch = Scratch(tmp_path / "work", 0, 1 << 20)
    found = external_edges(sources(2, src, 1 - src, None, weight, featured=featured), scratch, True)
    same_edges(expected[0], found[0])


class Stopped(Exception):
    pass


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("after", [1, 5, 9, 14, 20, 33, 47, 60])
def test_a_job_that_was_killed_goes_on(tmp_path, monkeypatch, undirected, after):
    """Stopped after some finished file, started again: the same edges, and no finished run is made twice."""
    src, dst, kind, weight = random_edges(5, 9, 90, True, True, False)
    expected = canonical_edges(src, dst, 9, weight, kind, undirected, num_types=3)
    finished, save = [], Scratch.save

    def save_some(self, name, array):
        if len(finished) >= after:  # other threads may have added theirs
            raise Stopped
        save(self, name, array)
        finished.append(name)

    source = sources(9, src, dst, kind, weight)
    monkeypatch.setattr(Scratch, "save", save_some)
    try:
        external_edges(source, Scratch(tmp_path / "work", 0, 1 << 20), undirected)
    except Stopped:
        monkeypatch.setattr(Scratch, "save", save)
        made = []
        chunk = source.chunk
        source.chunk = lambda start, stop: made.append(start) or chunk(start, stop)
        runs_left = {name for name in finished if name.startswith("edges/") and name.endswith(".key")}
        found = external_edges(source, Scratch(tmp_path / "work", 0, 1 << 20), undirected)
        if after < 20:
            assert len(made) == 9 - len(runs_left)
        same_edges(expected[0], found[0])
        same_edges(expected[1], found[1])
    else:
        assert after >= 47, "the test stops too late to stop anything"


def test_an_end_outside_the_nodes_is_named_by_its_place_in_the_input(tmp_path):
    src, dst = np.arange(40) % 5, np.arange(40) % 5
    dst[33] = 7
    with pytest.raises(GraphError, match="edge 33 has destination 7"):
        external_edges(sources(5, src, dst, None, None), Scratch(tmp_path / "work", 0, 1 << 20))


@pytest.mark.parametrize("values", [[], [4], [4] * 50, list(range(50)), [*range(20), *[3] * 40]])
def test_ranges_share_no_key_and_miss_none(tmp_path, values):
    random = np.random.default_rng(0)
    keys = random.permutation(np.array(values, np.int64))
    runs = Runs(Scratch(tmp_path / "work", 0, 1 << 20), "runs")
    runs.form(lambda index: Records(keys[index * 7 : index * 7 + 7].copy()), -(-len(keys) // 7))
    ranges = list(runs.merged(lambda records: records.key))
    assert np.array_equal(np.concatenate([np.zeros(0, np.int64), *ranges]), np.sort(keys))
    for before, after in zip(ranges, ranges[1:]):
        assert before[-1] < after[0]
    if len(set(values)) == 50:
        assert max(map(len, ranges)) <= 14, "ranges are about as long as asked for"


def test_results_come_in_order_and_an_error_in_its_turn():
    def work(item):
        if item == 30:
            raise ValueError(item)
        return item

    seen = []
    with pytest.raises(ValueError, match="30"):
        for item in in_order(work, range(100)):
            seen.append(item)
    assert seen == list(range(30))


def test_a_merge_opens_few_files_however_many_runs_there_are(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    keys = np.random.default_rng(0).permutation(3000)
    runs = Runs(Scratch(tmp_path / "work", 0, 1 << 20), "runs")
    runs.form(lambda index: Records(keys[index * 10 : index * 10 + 10].copy()), 300)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        found = np.concatenate(list(runs.merged(lambda records: records.key)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert np.array_equal(found, np.arange(3000))


@pytest.mark.parametrize("before, after, kept", [(4000, 3000, True), (3000, 4000, True), (40_000, 2000, False)])
def test_runs_are_found_again_with_other_memory(tmp_path, monkeypatch, before, after, kept):
    """What is free is never the same twice; only runs that are far too large for it are made again."""
    monkeypatch.setattr(sorting, "MOST_RUN", 1 << 20)
    keys, made = np.random.default_rng(0).permutation(500), []

    def formed(memory):
        runs = Runs(Scratch(tmp_path / "work", 0, memory), "runs")

        def make(index):
            made.append(index)
            return Records(keys[index * runs.size : (index + 1) * runs.size].copy())

        runs.form(make, -(-len(keys) // runs.size))
        return runs

    first = formed(before)
    made.clear()
    second = formed(after)
    assert (second.size == first.size and not made) if kept else (second.size < first.size and len(made) > 1)
    assert np.array_equal(np.concatenate(list(second.merged(lambda records: records.key))), np.arange(500))
