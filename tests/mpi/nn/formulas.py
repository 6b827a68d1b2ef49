"""Layers by their formulas over a list of all edges, which autograd differentiates: the oracle of layers and models.

p: {name of a parameter: tensor}; x (n, F): rows of all nodes; src, dst: ends of the edges; rows: of the edges, or None.
"""

import math

import torch
from torch.nn.functional import leaky_relu

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.nn.graph import Graph
from hpcgnn.ops.draws import Randomness
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import both_ways, check_rows


def summed(values, dst, n):
    return torch.zeros(n, *values.shape[1:], dtype=values.dtype).index_add(0, dst, values)


def largest(values, dst, n, sign=1):
    """The largest (sign 1) or the smallest (sign -1) value of each row, 0 where there is none."""
    index = dst[:, None].expand_as(values)
    top = torch.full((n, values.shape[1]), -torch.inf, dtype=values.dtype)
    top = top.scatter_reduce(0, index, sign * values, "amax")
    return sign * torch.where(top == -torch.inf, 0.0, top)


def attended(logit, value, dst, n, average=False, mask=1.0):
    """The values (E, heads x width), by the softmax of logits (E, heads) over the in-edges of each node.

    mask: factors (E, heads) of the shares.
    """
    weight = torch.exp(logit - largest(logit.detach(), dst, n)[dst])
    alpha = weight / summed(weight, dst, n)[dst] * mask
    y = summed(value.unflatten(1, (logit.shape[1], -1)) * alpha[..., None], dst, n)
    return y.mean(1) if average else y.flatten(1)


def affine(p, name, x):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def gat(p, x, src, dst, term=0.0, average=False):
    z = x @ p["linear.weight"]
    halves = [(z.unflatten(1, p["att_src"].shape) * p[f"att_{end}"]).sum(-1) for end in ("src", "dst")]
    logit = leaky_relu(halves[0][src] + halves[1][dst] + term, 0.2)
    return attended(logit, z[src], dst, len(x), average) + p["bias"]


def gatv2(p, x, src, dst, rows=None, average=False):
    source, target = affine(p, "source", x)[src], affine(p, "target", x)[dst]
    score = leaky_relu(source + target + _of_edges(p, rows), 0.2).unflatten(1, p["attention"].shape)
    return attended((score * p["attention"]).sum(-1), source, dst, len(x), average) + p["bias"]


def transformer(p, x, src, dst, heads, rows=None, average=False):
    key, value = (part[src] + _of_edges(p, rows) for part in affine(p, "key_value", x).chunk(2, 1))
    product = (affine(p, "query", x)[dst] * key).unflatten(1, (heads, -1))
    logit = product.sum(-1) / math.sqrt(product.shape[2])
    return attended(logit, value, dst, len(x), average) + affine(p, "own", x)


def gine(p, x, src, dst, rows):
    total = summed(torch.relu(x[src] + affine(p, "edge", rows)), dst, len(x)) + (1 + p["eps"]) * x
    return affine(p, "second", torch.relu(affine(p, "first", total)))


def pna(p, x, src, dst, rows=None):
    n, message = len(x), x[src] + _of_edges(p, rows)
    degree = torch.bincount(dst, minlength=n).to(x.dtype)[:, None]
    mean = summed(message, dst, n) / degree.clamp(min=1)
    std = (summed((message - mean[dst]) ** 2, dst, n) / degree.clamp(min=1) + 1e-5).sqrt() * (degree > 0)
    joined = torch.cat([mean, largest(message, dst, n), largest(message, dst, n, -1), std], 1)
    size = torch.log(degree + 1) / torch.log(degree + 1).mean().clamp(min=1e-12)
    scales = [torch.ones_like(size), size, torch.where(size > 0, 1 / size, 0.0)]
    return sum(s * (joined @ p[f"scaled.{k}.weight"]) for k, s in enumerate(scales)) + affine(p, "own", x)


def _of_edges(p, rows):
    return 0.0 if rows is None else rows @ p["edge.weight"]


def drawn(layer, num_nodes, d_in, d_out):
    """(x, gy) of all nodes; the parameters are drawn too."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * 0.5)
    x, gy = (torch.randn(num_nodes, width, generator=draw, dtype=torch.float64) for width in (d_in, d_out))
    return x.round(decimals=1), gy  # so that some of the largest are equal


class Expected:
    """The output and all gradients of a layer, by formula(parameters by name, x) over a list of all edges."""

    def __init__(self, layer, formula, x, gy):
        self.layer, self.x, self.gy = layer, x.clone().requires_grad_(), gy
        self.parameters = {key: value.detach().clone().requires_grad_() for key, value in layer.named_parameters()}
        self.y = formula(self.parameters, self.x)
        self.y.backward(gy[:, : self.y.shape[1]])

    def check(self, comm, local, rows):
        """Hold the layer on a LocalGraph against them. rows: of a round of the exchange."""
        buffers = HaloBuffers(4 * rows * 8 * 8 * self.gy.shape[1])
        policy = FullHalo(local, comm, buffers)
        graph = Graph(local, policy, comm.total, Randomness(1), lambda _, compute: compute(), buffers.arena)
        self.layer.zero_grad()
        gy = self.gy[:, : self.y.shape[1]]
        y, gradient, _ = both_ways(comm, local, lambda rows: self.layer(graph, rows), self.x.detach(), gy)
        check_rows(comm, local, y, self.y.detach())
        check_rows(comm, local, gradient, self.x.grad)
        for key, parameter in self.layer.named_parameters():
            total = comm.total(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone())
            torch.testing.assert_close(
                total, self.parameters[key].grad, rtol=0, atol=1e-9, msg=lambda text: f"{key}: {text}"
            )
