"""What the policies have in common whose ranks use some or old rows of others: gradients are pushed, see
ops/pushed.py.
"""

from hpcgnn.errors import ConfigError
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.convolution import convolve
from hpcgnn.schedules.base import Stateless


class PushedHalo(Stateless):
    """The verbs, those that do not go with such rows refused. name: of the schedule, for its errors.

    A policy has _aggregation(norm, dtype) and _attention(shape): the operator of the present call.
    """

    name = ""

    def aggregate(self, x, norm):
        """See HaloPolicy."""
        return self._aggregation(norm, x.dtype)(x)

    def convolve(self, x, neighbour, own, bias, norm, activation, kept=None):
        """See HaloPolicy."""
        return convolve(x, neighbour, own, bias, self._aggregation(norm, x.dtype), activation, kept)

    def attend(self, projected, shape, key, p, terms=None):
        """See HaloPolicy."""
        return self._attention(shape)(projected, shape, key, p, terms)

    def attention_layer(self, x, weight, bias, terms, shape, key, p, activation):
        """See HaloPolicy."""
        return attention_layer(x, weight, bias, terms, self._attention(shape), shape, key, p, activation)

    def largest(self, x):
        """Refused. Raises ConfigError."""
        self._refuse("that take the largest of the neighbours (sage with --aggregator max or pool)")

    def relate(self, x, coefficients, bases):
        """Refused. Raises ConfigError."""
        self._refuse("with relations (rgcn)")

    def propagate(self, rule, x_src, x_dst, edge):
        """Refused. Raises ConfigError."""
        self._refuse("with a message function of their own (gatv2, transformer, pna, plugins)")

    def _refuse(self, models):
        raise ConfigError(
            f"--schedule {self.name} is not for models {models}: expected gcn, sage with --aggregator mean, gin, sgc "
            "or gat, or --schedule sar"
        )
