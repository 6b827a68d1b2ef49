"""The small graph of the tests of whole jobs."""

from core.conftest import graph  # noqa: F401
