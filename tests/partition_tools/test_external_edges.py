"""Edges that are sorted in files equal the edges of a plain list, bit for bit, whatever the sizes of the pieces."""

import math
import resource

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcgnn.graphfile.schema import count_types
from partition_tools.canonical.canonical import ImportOptions
from partition_tools.canonical.imported_edges import imported_edges
from partition_tools.graph.raw import RawGraph
from partition_tools.out_of_core import sorting
from partition_tools.out_of_core.records import Records
from partition_tools.out_of_core.sorting import Runs
from partition_tools.workspace.scratch import Scratch


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """A run is a handful of edges, so that graphs of a test need many runs and ranges."""
    monkeypatch.setattr(sorting, "MOST_RUN", 8)
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


def sorted_edges(scratch, n, src, dst, kind, weight, featured=False, **options):
    """(edges, edges_out, self loops) of an import."""
    features = np.zeros((len(src), 1), np.float32) if featured else None
    raw = RawGraph(src, dst, n, weight=weight, type=kind, edge_features=features)
    return imported_edges(raw, ImportOptions(**options), (), scratch)[:3]


def listed(edges):
    """[(row, column, type, weight, row of features)] in the order of the file."""
    row = np.repeat(np.arange(len(edges.indptr) - 1), np.diff(edges.indptr))
    columns = (row, edges.indices, edges.type, edges.weight, edges.row)
    return list(zip(*(np.zeros(len(row)) if each is None else np.asarray(each).tolist() for each in columns)))


def expected_edges(edges, n, num_types, undirected, self_loops, drop_duplicates):
    """(edges, the same by source or None, self loops) of a list of (destination, source, type, weight, row)."""
    loops = {d for d, s, *_ in edges if d == s}
    if self_loops == "remove":
        edges = [edge for edge in edges if edge[0] != edge[1]]
    if self_loops == "add":
        edges = edges + [(node, node, num_types, 1.0, 0) for node in range(n) if node not in loops]
    edges = sorted(edges)
    if drop_duplicates:
        edges = [edge for place, edge in enumerate(edges) if not place or edges[place - 1][:3] != edge[:3]]
    out = sorted(((s, d, *rest) for d, s, *rest in edges), key=lambda edge: edge[:2])
    same = [edge[:4] for edge in out] == [edge[:4] for edge in edges]
    if undirected and not same:
        merged = {}
        for d, s, kind, weight, row in edges:
            merged.setdefault((min(s, d), max(s, d), kind), []).append((weight, row))
        edges = []
        for (low, high, kind), of_pair in merged.items():
            weight = float(np.float32(math.fsum(weight for weight, _ in of_pair) / len(of_pair)))
            edge = kind, weight, min(row for _, row in of_pair)
            edges += [(low, high, *edge)] + ([(high, low, *edge)] if low != high else [])
        edges, out = sorted(edges), None
    return edges, None if same else out, sum(d == s for d, s, *_ in edges)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 9),
    count=st.integers(0, 90),
    flags=st.tuples(*[st.booleans()] * 7),
    self_loops=st.sampled_from(["keep", "add", "remove"]),
)
def test_edges_are_those_of_a_plain_list(tmp_path_factory, seed, n, count, flags, self_loops):
    weighted, typed, symmetric, undirected, drop_duplicates, add_reverse, featured = flags
    src, dst, kind, weight = random_edges(seed, n, count, weighted, typed, symmetric)
    add_reverse, featured = add_reverse and typed, featured and self_loops != "add"
    undirected = undirected and not add_reverse
    columns = (dst, src, kind, weight, np.arange(len(src)) if featured else None)
    edges = list(zip(*(np.zeros(len(src)) if each is None else each.tolist() for each in columns)))
    if add_reverse:
        edges += [(s, d, t + count_types(kind), w, r) for d, s, t, w, r in edges]
    num_types = count_types(kind) * (1 + add_reverse)
    found = sorted_edges(
        Scratch(tmp_path_factory.mktemp("work"), 1 << 20),
        *(n, src, dst, kind, weight, featured),
        add_reverse=add_reverse,
        undirected=undirected,
        self_loops=self_loops,
        drop_duplicates=drop_duplicates,
    )
    if not typed or not weighted:  # loops that are added carry only what other edges do
        num_types = num_types if typed else 0
    expected = expected_edges(edges, n, num_types, undirected, self_loops, drop_duplicates)
    if not weighted:
        expected = *(each and [(*e[:3], 0, e[4]) for e in each] for each in expected[:2]), expected[2]
    assert listed(found[0]) == expected[0] and found[2] == expected[2]
    assert (found[1] is None) == (expected[1] is None)
    assert found[1] is None or [e[:4] for e in listed(found[1])] == [e[:4] for e in expected[1]]


@pytest.mark.parametrize("featured", [False, True])
def test_parallel_edges_are_merged_with_one_rounding(tmp_path, featured):
    """Means of weights depend on the order of the sum: many parallel edges of one pair, in both directions."""
    random = np.random.default_rng(1)
    src = np.repeat([0, 1], [40, 31])
    weight = (random.standard_normal(71) * 10.0 ** random.integers(-6, 6, 71)).astype(np.float32)
    found = sorted_edges(Scratch(tmp_path / "w", 1 << 20), 2, src, 1 - src, None, weight, featured, undirected=True)
    one, other = found[0].weight
    assert one == other and abs(one - math.fsum(weight.tolist()) / 71) < 1e-6 * np.abs(weight).max()


def test_a_merge_opens_few_files_and_each_core_has_ranges(tmp_path, monkeypatch):
    """However many runs there are, and though one core could sort all records at once. Few runs stay in memory."""
    monkeypatch.setattr(sorting.cores, "usable", lambda: frozenset(range(4)))
    for name, records in {"MOST_RUN": 1 << 25, "MOST_RANGE": 1 << 20, "LEAST": 50}.items():
        monkeypatch.setattr(sorting, name, records)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    keys = np.random.default_rng(0).permutation(3000)
    runs = Runs(Scratch(tmp_path / "work", 1 << 20), "runs", 3000)
    runs.form(lambda index: Records(keys[index * 10 : index * 10 + 10].copy()), 300)
    assert 0 < len(runs.in_memory) < 300 and len(runs.in_memory) * runs.size * sorting.RECORD_BYTES <= 1 << 18
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        found = list(runs.merged(lambda records: records.key))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert np.array_equal(np.concatenate(found), np.arange(3000))
    runs.remove()
    assert not runs.in_memory and runs.size == 375 and len(found) >= 8 and max(map(len, found)) < 1.25 * 375
