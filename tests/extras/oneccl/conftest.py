"""The small graph of the tests of whole jobs."""

from core.conftest import good  # noqa: F401
