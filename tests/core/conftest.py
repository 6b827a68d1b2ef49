"""Graphs that many files train on, and commands in this process. Properties are checked however slow the machine is."""

from types import SimpleNamespace

import graphs
import pytest
from hypothesis import settings

from hpcgnn.__main__ import main
from hpcgnn.comm import SoloCommunicator
from partition_tools.cli.partition_graph import partition_graph

from .launching import Result

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")


@pytest.fixture(scope="session")
def graph(tmp_path_factory):
    """A graph of 300 nodes with maps for 1, 2 and 4 ranks, and one of another name for 3."""
    path = graphs.planted(tmp_path_factory.mktemp("core") / "g.h5", [1, 2, 4])
    partition_graph(path, [3], method="random-clusters")
    return path


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A smaller one with the oddities of real graphs, and maps for 2 ranks."""
    graph = graphs.with_task(graphs.random_undirected())
    return graphs.write_file(tmp_path_factory.mktemp("good") / "g.h5", graph, graphs.layout(graph, 2), 2)


@pytest.fixture
def command(capsys, monkeypatch):
    """command(words …, cwd=None) runs `hpcgnn` on one rank, in this process and without MPI; its Result."""
    here = {"threads": 1, "ranks_on_node": 1, "node": 0, "shares_cores": True, "mpi_bytes": 0}
    monkeypatch.setattr("hpcgnn.engine.summary.draw_curves", lambda run_dir: None)  # takes longer than training
    session = SimpleNamespace(comm=SoloCommunicator(), **here)
    monkeypatch.setattr("hpcgnn.comm.launch.run.run", lambda work, threads, **more: work(session))

    def run(*words, cwd=None):
        capsys.readouterr()
        with monkeypatch.context() as patch:
            if cwd is not None:
                patch.chdir(cwd)
            code = main([str(word) for word in words])
        return Result(code, *capsys.readouterr(), 0.0)

    return run
