"""Where numbers stopped being finite, when no output of a layer did (those: tests/mpi/engine/test_not_finite.py)."""

import torch

from hpcgnn.comm import SoloCommunicator
from hpcgnn.engine.diagnosis import first_not_finite


def test_finite_outputs_and_parameters_that_are_not():
    model, comm = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3))), SoloCommunicator()

    def again():
        return model(torch.ones(2, 3)).sum()

    infinite = first_not_finite(model, lambda: again() * torch.inf, comm)
    assert infinite == "every layer's output is finite, the loss of them is not"
    assert first_not_finite(model, again, comm) == "a second pass was finite"
    assert not any(layer._forward_hooks for layer in model), "nothing stays behind"
    with torch.no_grad():
        model[1].bias[2] = torch.nan
    assert first_not_finite(model, again, comm) == "parameter 1.bias is not finite already"
