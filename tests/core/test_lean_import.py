"""Parts of torch that no rank uses are not loaded; a plugin finds torch whole."""

import pytest

from .launching import start

PROGRAM = """
import sys
from hpcgnn.__main__ import main
code = main(["train", "--graph", "absent.h5"])
import torch
left_out = "torch._meta_registrations" not in sys.modules and not hasattr(torch, "_meta_registrations")
print("left out", left_out, "code", code)
from hpcgnn.__main__ import registry_choices
from hpcgnn.config import make_config
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.engine.probe import probe_step
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins.memory_use import LiveTensors
config = make_config({"graph": "-"}, registry_choices()).replace(task="classification")
probe_step(RunPlan(config, ModelSpec(config.model, 4, 3)), make_plugins)
with LiveTensors():
    torch.ones(3) + 1
print("the compiler is loaded:", "torch._dynamo" in sys.modules)
from hpcgnn.nn.plugin import load_plugin
load_plugin(sys.argv[1])
import plugin_says
"""

# A shape that only the compiler's kernels know.
PLUGIN = """
import sys, torch, types
shape = torch.linalg.svd(torch.empty(5, 3, device="meta")).U.shape
print("a plugin finds", tuple(shape))
sys.modules["plugin_says"] = types.ModuleType("plugin_says")
"""

POLICIES = """
import os, sys
from hpcgnn.__main__ import set_process_policies
set_process_policies()
print({"torch", "mpi4py"} & set(sys.modules), os.environ["OMP_WAIT_POLICY"], os.environ["THP_MEM_ALLOC_ENABLE"])
"""


@pytest.mark.parametrize("own, expected", [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_policies_are_set_before_torch_is_loaded(monkeypatch, own, expected):
    """Its libraries read them, and bind the main thread, when they load. The user's word about huge pages stays."""
    for name in ("OMP_WAIT_POLICY", "THP_MEM_ALLOC_ENABLE"):
        monkeypatch.delenv(name, raising=False)  # these tests have a policy of their own
    done = start(0, "-c", POLICIES, **own)
    assert done.code == 0, done.err
    assert done.out == f"set() passive {expected}\n"


def test_the_compilers_kernels_are_left_out_until_a_plugin_comes(tmp_path):
    """The compiler came with torch's optimizer classes: 70 MiB and seconds of every rank's start."""
    (tmp_path / "shapes.py").write_text(PLUGIN)
    done = start(0, "-c", PROGRAM, tmp_path / "shapes.py")
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["left out True code 2", "the compiler is loaded: False", "a plugin finds (5, 5)"]
