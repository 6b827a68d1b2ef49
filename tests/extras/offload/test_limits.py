"""The memory that a node leaves to the ranks of a job: the least value of machine, control groups and batch system."""

from types import SimpleNamespace

import pytest
from graphs import META
from hypothesis import given, strategies

from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError
from hpcgnn.extras.offload import limits as memory_limit
from hpcgnn.extras.offload.options import said_memory
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import plan

GIB = 1 << 30


def test_the_least_counts(monkeypatch):
    """The memory that ranks hold counts against the machine's free memory, and is part of the limits of groups and
    jobs.
    """
    monkeypatch.setattr(memory_limit, "machine_available", lambda: 10 * GIB)
    monkeypatch.setattr(memory_limit, "resident_bytes", lambda: GIB)
    monkeypatch.setattr(memory_limit, "group_limits", list)
    for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE"):
        monkeypatch.delenv(f"SLURM_{name}", raising=False)
    assert memory_limit.node_memory(2, 8) == 12 * GIB
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "2048")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    assert memory_limit.node_memory(2, 8) == 8 * GIB
    monkeypatch.setattr(memory_limit, "group_limits", lambda: [9 << 40, 7 * GIB])
    assert memory_limit.node_memory(2, 8) == 7 * GIB


def test_who_has_a_limit(monkeypatch):
    session = SimpleNamespace(ranks_on_node=4, node=0, comm=SimpleNamespace(size=8))
    monkeypatch.setattr(memory_limit, "node_memory", lambda ranks_on_node, ranks: 16 * GIB)

    def limit(**options):
        return memory_limit.memory_limit(
            make_config({"graph": "g.h5", "model": "gcn", **options}, registry_choices()), session
        )

    assert limit().total == limit(schedule="lazy").total == 15 * GIB
    assert limit(memory="48G").total == 48 * GIB and limit(memory="48G").said == "48G"
    assert limit(memory="none") is limit(memory="") is limit(schedule="bns") is None


BYTES = strategies.integers(0, 1 << 50)


@given(BYTES, strategies.lists(strategies.tuples(BYTES, BYTES), min_size=1, max_size=9))
def test_a_node_is_divided_by_what_its_ranks_need(total, ranks):
    least, wanted = zip(*ranks)
    shares = memory_limit.divided(total, least, wanted)
    assert sum(shares) <= total
    if total >= sum(least):
        assert all(share >= each for share, each in zip(shares, least)), "nobody goes without what it needs"
    if total >= sum(least) + sum(wanted):
        assert all(share >= sum(each) for share, each in zip(shares, ranks)), "what fits together fits each"
    for share, (one, more) in zip(shares, ranks):
        others = [theirs for theirs, each in zip(shares, ranks) if one <= each[0] and more <= each[1]]
        assert all(share <= theirs for theirs in others), "who needs more has no less"


def test_sizes():
    assert said_memory("48G") == 48 << 30 and said_memory("1.5 TiB") == 3 << 39 and said_memory("800m") == 800 << 20
    assert said_memory("auto") is said_memory("none") is said_memory("") is None
    for text in ("48", "G", "-1G", "0G", "1e3M", "4X"):
        with pytest.raises(ConfigError, match="expected a size such as 48G"):
            make_config({"graph": "g.h5", "memory": text}, registry_choices())


def test_what_cannot_be():
    for schedule in ("stale", "bns"):
        config = make_config({"graph": "g.h5", "schedule": schedule, "memory": "1G"}, registry_choices())
        with pytest.raises(ConfigError, match="--memory is for --schedule sar and lazy"):
            plan(config, META)
        plan(config, META, learns=False)
    config = make_config({"graph": "g.h5", "intra_node": "shared", "memory": "1G"}, registry_choices())
    with pytest.raises(ConfigError, match="no --memory"):
        plan(config, META)
