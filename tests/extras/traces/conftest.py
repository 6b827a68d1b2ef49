"""Graphs of tests/mpi."""

from mpi.conftest import graph, paths  # noqa: F401
