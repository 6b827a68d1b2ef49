"""The graph, and the folder of a run, that tests of the core have."""

from core.conftest import graph  # noqa: F401
from core.test_output_files import run  # noqa: F401
