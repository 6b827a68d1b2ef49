"""Tests of extras run on ranks by the conftest of tests/mpi."""

from mpi import conftest as ranks
from mpi.conftest import (  # noqa: F401
    _fresh_ledger,
    comm,
    edge_files,
    graph,
    job_session,
    no_pictures,
    paths,
    session_path,
    shared_path,
)


def pytest_configure(config):
    if not config.pluginmanager.has_plugin(ranks.__file__):
        config.pluginmanager.register(ranks, ranks.__file__)
