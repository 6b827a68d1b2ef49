"""The way of a hidden layer from the model to the kernel is short: the package's frames between them are counted."""

import inspect
from pathlib import Path

import pytest

import hpcgnn
from hpcgnn.config import make_config
from hpcgnn.kernels import native
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.offload.toy import toy_step
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import RunPlan

ROOT = Path(hpcgnn.__file__).parent
FRAMES = 7


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_frames_of_a_hidden_layer(monkeypatch, model):
    seen, gather = set(), native.Native.gather

    def noted(*arguments):
        stack = [f.frame.f_code for f in inspect.stack() if ROOT in Path(f.filename).parents]
        names = [code.co_qualname for code in stack]
        if "Convolve.forward" in names and "Model.forward" in names:
            seen.add((*names[: names.index("Model.forward") + 1][::-1], "Native.gather"))
        return gather(*arguments)

    monkeypatch.setattr(native.Native, "gather", noted)
    values = {"graph": "g.h5", "model": model, "layers": 3, "hidden": 8, "task": "classification", "metric": "accuracy"}
    config = make_config({**values, "loss": "cross-entropy"}, registry_choices())
    toy_step(RunPlan.of(config, ModelSpec(model, 4, 8, 3, 3)))
    assert seen
    for frames in seen:
        assert len(frames) <= FRAMES, " -> ".join(frames)
