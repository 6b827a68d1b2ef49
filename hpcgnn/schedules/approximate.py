"""A step may be approximate; what is kept for the run, and what is reported, never is.

Narrowed, sampled or delayed rows make noise that training averages out. A number that is published must not depend on
it, nor on how many ranks computed it, and neither may the aggregate of the features that is exchanged once and kept. So
wherever no gradient is wanted (evaluation, kept aggregates), the rows of all neighbours are exchanged as they are.
"""

import torch


class ApproximateInTraining:
    """A halo policy of two: `training` gives the operators where gradients are wanted, `exact` elsewhere. All else is a
    matter of training alone.
    """

    def __init__(self, exact, training):
        self.exact, self.training = exact, training

    def operator(self, description):
        """See HaloPolicy."""
        return (self.training if torch.is_grad_enabled() else self.exact).operator(description)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.training, name)
