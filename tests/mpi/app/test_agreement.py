"""Ranks that are about to do different things say so, all of them, instead of hanging or training something in
between.
"""

from unittest import mock

import graphs
import pytest

from hpcgnn.app import agreement, bring_up
from hpcgnn.app.agreement import agree, facts_of_process
from hpcgnn.app.train import train
from hpcgnn.errors import ConfigError

from ..small import written
from ..training import configure

pytestmark = [pytest.mark.ranks(2), pytest.mark.processes]


def differs(comm, value, other):
    """`value`, but `other` on the last rank."""
    return other if comm.rank == comm.size - 1 else value


def disagree(comm, facts, *words):
    with pytest.raises(ConfigError) as caught:
        agree(comm, facts)
    assert caught.value.everywhere and "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in (*words, f"on rank {comm.size - 1}"))


def test_options_versions_and_code(comm, monkeypatch):
    agree(comm, facts_of_process(configure("g.h5", threads=comm.rank + 1, run_dir=f"{comm.rank}"), comm))
    disagree(comm, facts_of_process(configure("g.h5", hidden=differs(comm, 8, 9)), comm), "--hidden is", "8", "9")
    here = agreement.versions()
    monkeypatch.setattr(agreement, "versions", lambda: here | {"numpy": differs(comm, "2.0.0", "1.26.4")})
    disagree(comm, facts_of_process(configure("g.h5"), comm), "numpy is", "1.26.4")
    monkeypatch.setattr(agreement, "versions", lambda: here)
    monkeypatch.setattr(agreement, "code_hash", lambda: differs(comm, "abc", "def"))
    disagree(comm, facts_of_process(configure("g.h5"), comm), "hpcgnn's code", "def")


def test_another_graph_or_map_on_one_rank(comm, shared_path, job_session):
    """As when the file is made again while the job starts."""
    graph = graphs.with_task(graphs.random_undirected())
    files = [
        written(comm, shared_path, graph, str(seed), where=graphs.layout(graph, comm.size, seed=seed))[2]
        for seed in (5, 6)
    ]
    opened, mine = bring_up.open_graph, differs(comm, *files)
    with mock.patch.object(bring_up, "open_graph", lambda path, comm, **more: opened(mine, comm, **more)):
        with pytest.raises(ConfigError, match="the map is"):
            train(configure("graph.h5", run_dir=str(shared_path / "run"), partition="random"), job_session)
    assert not (shared_path / "run").exists()
