"""Degree normalisation as row scalings, so that no edge weight is ever read for it.

An aggregation is y = R A S x with diagonal R (destinations) and S (sources). Degrees are those of the whole graph,
never of a part, so results do not change with the partition. A node without in-edges aggregates to zero.
"""

import torch


def _power(degree, exponent, dtype):
    return torch.where(degree > 0, degree.clamp_min(torch.finfo(degree.dtype).tiny) ** exponent, 0.0).to(dtype)


def _sum(graph, dtype):
    return None, None


def _mean(graph, dtype):
    """Σ w x / Σ w over the in-edges; w = 1 without weights."""
    return _power(graph.inward.degree, -1.0, dtype), None


def _sym(graph, dtype):
    """D_in^-1/2 A D_out^-1/2 (Kipf and Welling, ICLR'17, eq. 2; with out-degrees of sources where the graph is
    directed).
    """
    return _power(graph.inward.degree, -0.5, dtype), _power(graph.outward.degree, -0.5, dtype)


NORMS = {"sum": _sum, "mean": _mean, "sym": _sym}


def scales(graph, norm, dtype):
    """(R, S) of a LocalGraph: tensors of `dtype`, or None for ones, R of the rows that are computed, S (n_p,). norm: a key of
    `NORMS`.
    """
    return NORMS[norm](graph, dtype)
