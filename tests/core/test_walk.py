"""The way of a hidden layer from the model to the kernel is short: the frames between are counted."""

import inspect
from pathlib import Path

import pytest

import hpcgnn
from hpcgnn import kernels
from hpcgnn.config import make_config
from hpcgnn.engine.probe import probe_step
from hpcgnn.kernels.kernel import Kernel
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins.registry import make_plugins

ROOT = Path(hpcgnn.__file__).parent
FRAMES = 7


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize("kernel", ["convolve", "gather"])
def test_frames_of_a_hidden_layer(monkeypatch, model, kernel):
    """The kernel of a whole convolution, and the one that sums rows where that cannot serve."""
    seen, function = set(), Kernel.__call__

    def noted(self, *arguments, **options):
        stack = [f.frame.f_code for f in inspect.stack() if ROOT in Path(f.filename).parents]
        names = [code.co_qualname for code in stack]
        if self.name == kernel and "Convolve.forward" in names and "Model.forward" in names:
            seen.add((*names[: names.index("Model.forward") + 1][::-1], kernel))
        return function(self, *arguments, **options)

    monkeypatch.setattr(Kernel, "__call__", noted)
    if kernel == "gather":
        monkeypatch.setattr(kernels, "convolves", lambda *matrices: False)
    values = {"graph": "g.h5", "model": model, "hidden": 3, "dropout": 0.0, "task": "classification"}
    config = make_config({**values, "metric": "accuracy", "loss": "cross-entropy"}, registry_choices())
    probe_step(RunPlan(config, ModelSpec(config.model, 4, 8)), make_plugins)
    assert seen
    for frames in seen:
        assert len(frames) <= FRAMES, " -> ".join(frames)
