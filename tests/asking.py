"""Requests of tests to a halo policy, in a word: an operator, applied at once."""

from hpcgnn.ops.additive_attention import Attending
from hpcgnn.ops.attention_layer import attention_layer
from hpcgnn.ops.operators import Attention, Messages, WeightedSum


def aggregate(policy, x, norm):
    """R A S x; see LinearAggregation."""
    return policy.operator(WeightedSum(norm, x.dtype))(x)


def attend(policy, projected, shape, key=0, p=0.0):
    """Additive attention; see AdditiveAttention."""
    return attention_layer(projected, None, policy.operator(Attention(shape)), Attending(shape, key, p))


def propagate(policy, rule, x_src, x_dst, edge):
    """See Propagation."""
    return policy.operator(Messages())(rule, x_src, x_dst, edge)
