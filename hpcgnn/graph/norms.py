"""Degree normalisation as row scalings, so that no edge weight is ever read for it.

An aggregation is y = R A S x with diagonal R (destinations) and S (sources). Degrees are of the whole graph, never of a
part, so results do not change with the partition. A node without in-edges aggregates to zero, and so does one with a
zero sum of weights (see sums.py).
"""

import torch

from hpcgnn.graph.local import LocalGraph

#: R and S; None for ones.
Scales = tuple[torch.Tensor | None, torch.Tensor | None]


def _inverse_root(degree: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.where(degree > 0, degree.clamp_min(torch.finfo(degree.dtype).tiny) ** -0.5, 0.0).to(dtype)


def _sum(graph: LocalGraph, dtype: torch.dtype) -> Scales:
    return None, None


def _mean(graph: LocalGraph, dtype: torch.dtype) -> Scales:
    """Σ w x / Σ w over the in-edges, where Σ w is not 0; w = 1 without weights."""
    degree = graph.inward.degree
    return torch.where(degree != 0, 1 / degree, 0.0).to(dtype), None


def _sym(graph: LocalGraph, dtype: torch.dtype) -> Scales:
    """D_in^-1/2 A D_out^-1/2 (Kipf and Welling, ICLR'17, eq. 2; with out-degrees of sources where the graph is
    directed). Degrees below 0 are refused before (app/graph_checks.py).
    """
    row_scale = _inverse_root(graph.inward.degree, dtype)
    alike = graph.outward is graph.inward
    return row_scale, row_scale if alike else _inverse_root(graph.outward.degree, dtype)


NORMS = {"sum": _sum, "mean": _mean, "sym": _sym}


def scales(graph: LocalGraph, norm: str, dtype: torch.dtype) -> Scales:
    """(R, S) of a graph: of `dtype`, or None for ones, R of the rows that are computed, S (n_p,). norm: a
    key of `NORMS`.
    """
    return NORMS[norm](graph, dtype)
