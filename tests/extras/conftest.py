"""Tests of extras run on ranks as those of tests/mpi do: by its conftest."""

from mpi import conftest as ranks
from mpi.conftest import _fresh_ledger, comm, job_session, no_pictures, session_path, shared_path  # noqa: F401


def pytest_configure(config):
    if not config.pluginmanager.has_plugin(ranks.__file__):
        config.pluginmanager.register(ranks, ranks.__file__)
