"""The plugin of docs/extending.md passes the suite of its page, and a plugin with faults does not."""

import re
import subprocess
import sys

import pytest
from pages import blocks, read

from hpcgnn.testing import LayerTests

FAULTY = """
import torch
from hpcgnn.nn.registry import register


@register("faulty")
class Faulty(torch.nn.Linear):
    def __init__(self, d_in, d_out, dtype):
        super().__init__(d_in, d_out, dtype=dtype)

    def forward(self, graph, x):
        rows = torch.arange(len(x)).repeat_interleave(graph._local.inward.edge_counts)
        for_each_edge = x[rows].tanh().square().mean()
        return super().forward(x + x.detach() * for_each_edge)
"""


@pytest.mark.slow
def test_the_suite_of_the_page(tmp_path):
    plugin, tests = blocks(read("extending.md"), "python")[:2]
    (tmp_path / "edgeconv.py").write_text(plugin)
    (tmp_path / "test_edgeconv.py").write_text(tests.rstrip() + "\n    ranks = (1, 2)\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    passed = re.findall(r"::(test_\w+) PASSED", done.stdout)
    assert sorted(passed) == sorted(name for name in vars(LayerTests) if name.startswith("test_")), done.stdout


@pytest.mark.slow
def test_faults_are_found(tmp_path, tmp_path_factory):
    """A gradient that is cut off, and a row that is kept for each edge."""

    class Suite(LayerTests):
        plugin, model, ranks = tmp_path / "faulty.py", "faulty", (1,)

    Suite.plugin.write_text(FAULTY)
    for test, fault in (
        (Suite().test_gradients_are_derivatives, "the gradient of the input is"),
        (Suite().test_nothing_is_kept_for_each_edge, "of 4 times the edges"),
    ):
        with pytest.raises(AssertionError, match=fault):
            test(tmp_path_factory)
