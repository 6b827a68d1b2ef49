"""A step may be approximate; what is kept for the run, and what is reported, never is.

Narrowed, sampled or delayed rows make noise that training averages out. A number that is published must not depend on
it, nor on how many ranks computed it, and neither may the aggregate of the features that is exchanged once and kept. So
wherever no gradient is wanted (evaluation, kept aggregates), the rows of all neighbours are exchanged as they are.
"""

import torch


class ApproximateInTraining:
    """A halo policy of two: `training` where gradients are wanted, `exact` elsewhere."""

    def __init__(self, exact, training):
        self.exact, self.training = exact, training

    @property
    def _now(self):
        return self.training if torch.is_grad_enabled() else self.exact

    def restricted(self, local):
        """See HaloPolicy; for training only."""
        return self.training.restricted(local)

    def begin_epoch(self, epoch):
        """Called by all ranks before the forward pass of an epoch."""
        self.training.begin_epoch(epoch)

    def aggregate(self, x, norm):
        """See HaloPolicy."""
        return self._now.aggregate(x, norm)

    def convolve(self, x, neighbour, own, bias, norm, activation, kept=None):
        """See HaloPolicy."""
        return self._now.convolve(x, neighbour, own, bias, norm, activation, kept)

    def attend(self, projected, shape, key, p, terms=None):
        """See HaloPolicy."""
        return self._now.attend(projected, shape, key, p, terms)

    def attention_layer(self, x, weight, bias, terms, shape, key, p, activation):
        """See HaloPolicy."""
        return self._now.attention_layer(x, weight, bias, terms, shape, key, p, activation)

    def largest(self, x):
        """See HaloPolicy."""
        return self._now.largest(x)

    def relate(self, x, coefficients, bases):
        """See HaloPolicy."""
        return self._now.relate(x, coefficients, bases)

    def propagate(self, rule, x_src, x_dst, edge):
        """See HaloPolicy."""
        return self._now.propagate(rule, x_src, x_dst, edge)

    @property
    def has_state(self):
        """See HaloPolicy."""
        return self.training.has_state

    @property
    def kept_bytes(self):
        """See HaloPolicy."""
        return self.training.kept_bytes

    def state(self):
        """See HaloPolicy."""
        return self.training.state()

    def load_state(self, tensors):
        """See HaloPolicy."""
        self.training.load_state(tensors)

    @property
    def overflowed(self):
        """Whether a number was too large for the way, on this rank."""
        return self.training.overflowed
