"""Any message function over ranks against autograd over a list of all edges: outputs, every gradient, bytes,
refusals.
"""

import graphs
import numpy as np
import pytest
import torch
from asking import propagate

from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.ops.propagate import Remade, Rule
from hpcgnn.schedules.full_halo import FullHalo

from ..gathering import sent_both_ways, whole
from ..nn import formulas
from ..small import GRAPHS, edges_of, stored

WIDTH, HEADS = 4, 2
EPSILON = 1e-5


class Messages(torch.nn.Module):
    """A function of source, destination and edge with parameters of its own; `coarse` makes many messages equal."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce, self.coarse = reduce, reduce in ("max", "min")
        draw = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(3 * WIDTH, WIDTH, generator=draw, dtype=torch.float64))
        self.score = torch.nn.Parameter(torch.randn(WIDTH, HEADS, generator=draw, dtype=torch.float64))
        self.unused = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, src, dst=None, edge=None):
        if self.coarse:
            return src.relu() * 2  # zeros of many neighbours share the gradient
        joined = torch.cat([src, src if dst is None else dst, src if edge is None else edge], 1)
        value = torch.tanh(joined @ self.weight)
        return (value @ self.score, value * src) if self.reduce == "softmax" else value


def reduced(reduce, message, dst, n):
    """The definition of a reduction, over all edges at once, float64; torch's own scatter where it has one."""
    rows, count = torch.from_numpy(dst), torch.from_numpy(np.bincount(dst, minlength=n))[:, None]
    some = (count > 0).double()
    if reduce == "softmax":
        return formulas.attended(*message, rows, n)
    if reduce is None:
        return message
    if reduce in ("max", "min"):
        return formulas.largest(message, rows, n, 1 if reduce == "max" else -1)
    total = formulas.summed(message, rows, n)
    mean = total / count.clamp(min=1)
    if reduce == "std":
        apart = formulas.summed((message - mean[rows]) ** 2, rows, n) / count.clamp(min=1)
        return torch.sqrt(apart + EPSILON) * some
    return total if reduce == "sum" else mean


def inputs_of(graph, num_edges, given):
    """{name: float64 rows} in original order; edge rows in the order of `edges_of`."""
    random = np.random.default_rng(4)
    sizes = {"x_src": graph.num_nodes, "x_dst": graph.num_nodes, "edge": num_edges}
    return {name: torch.from_numpy(random.standard_normal((sizes[name], WIDTH))) for name in given}


def local_edges(local, where, map_name, comm, src, dst):
    """For each edge of the rank, in its order, its place in the list of all edges."""
    row_of = np.empty(len(where.order), np.int64)
    row_of[where.order] = np.arange(len(where.order))
    mine = np.isin(dst, local.original_id.numpy())
    place = np.flatnonzero(mine)
    local_row = {int(node): row for row, node in enumerate(local.original_id)}
    rows = np.array([local_row[node] for node in dst[place]], np.int64)
    return place[np.lexsort((row_of[src[place]], rows))]


def gradient_of(tensor):
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.clone()


def compare(comm, name, folder, map_name, reduce, given, rows=6):
    graph, where, file = stored(comm, folder, name)
    local = graphs.load(file, where.maps[map_name], comm, cap=rows, keep_edges=True)
    src, dst = edges_of(graph, "keep")
    values = inputs_of(graph, len(src), given)
    function = Messages(reduce)
    oracle_inputs = {key: value.clone().requires_grad_() for key, value in values.items()}
    ends = {"x_src": src, "x_dst": dst, "edge": np.arange(len(src))}
    message = function(*(oracle_inputs[key][ends[key]] for key in given))
    names = reduce if isinstance(reduce, tuple) else (reduce,)
    y = torch.cat([reduced(each, message, dst, graph.num_nodes) for each in names], 1)
    gy = torch.from_numpy(np.random.default_rng(5).standard_normal(y.shape))
    sums = formulas.summed(y, torch.from_numpy(dst), graph.num_nodes) if reduce is None else y
    (y * gy + y * sums[dst] if reduce is None else y * gy).sum().backward()
    expected = {key: gradient_of(value) for key, value in oracle_inputs.items()}
    weights = {key: gradient_of(p) for key, p in function.named_parameters()}
    function.zero_grad(set_to_none=True)

    places = {"edge": local_edges(local, where, map_name, comm, src, dst)}
    mine = {key: value[places.get(key, local.original_id)].requires_grad_() for key, value in values.items()}
    buffers = HaloBuffers(4 * rows * 2 * WIDTH * 8)
    found = propagate(
        FullHalo(local, comm, buffers), Rule(function, reduce), mine["x_src"], mine.get("x_dst"), mine.get("edge")
    )
    close = dict(rtol=0, atol=1e-9 * max(1, float(sums.detach().abs().max())))
    if reduce is None:
        found, added = found
        np.testing.assert_allclose(found.detach(), y[places["edge"]].detach(), **close)
        np.testing.assert_allclose(whole(comm, local, added), sums.detach().numpy(), **close)
        (found * gy[places["edge"]]).sum().add((added * added).sum()).backward()
    else:
        np.testing.assert_allclose(whole(comm, local, found), y.detach().numpy(), **close)
        found.backward(gy[local.original_id])
    for key in given:
        if key == "edge":
            np.testing.assert_allclose(mine[key].grad, expected[key][places["edge"]], **close)
        else:
            np.testing.assert_allclose(whole(comm, local, mine[key].grad), expected[key], **close)
    for key, parameter in function.named_parameters():
        np.testing.assert_allclose(comm.total(gradient_of(parameter)), weights[key], **close)


GIVEN = ("x_src", "x_dst", "edge")


@pytest.mark.parametrize(
    "reduce", ["sum", "mean", "max", "min", "std", "softmax", ("mean", "max", "min", "std"), None], ids=str
)
@pytest.mark.parametrize("name", GRAPHS)
def test_against_the_oracle(comm, session_path, monkeypatch, name, reduce):
    compare(comm, name, session_path, "one empty", reduce, GIVEN[: 2 if reduce else 3])
    # So small that rows are continued in the next tile.
    monkeypatch.setattr("hpcgnn.ops.row_tiles.EDGE_TILE_BYTES", 1500)
    compare(comm, name, session_path, "dealt", reduce, GIVEN, rows=1 if comm.size == 2 else 6)


def test_bytes(comm, session_path):
    """F numbers for a halo row forwards; backwards F again and F back to the owner; nothing back where no gradient is
    wanted."""
    graph, where, file = stored(comm, session_path, "random directed")
    local = graphs.load(file, where.maps["dealt"], comm, cap=7)
    policy, function = FullHalo(local, comm, HaloBuffers(4 * 7 * 2 * WIDTH * 8)), Messages("sum")
    x = torch.rand(local.num_owned, WIDTH, dtype=torch.float64)
    propagate(policy, Rule(function, "sum"), x, None, None)  # the ids of the halo are fetched once, before
    for wanted in (True, False):
        comm.ledger.take()
        propagate(policy, Rule(function, "sum"), x.clone().requires_grad_(wanted), x, None).sum().backward()
        sent, received = local.inward.plan.num_boundary, local.inward.plan.num_halo
        expected = [8 * WIDTH * sent, 8 * WIDTH * (sent + received * wanted)]
        assert sent_both_ways(comm.ledger.take()) == expected


@pytest.mark.processes
def test_the_random_state_is_restored(comm, session_path, monkeypatch):
    """Whatever the function draws from torch's generator it draws again in the backward pass, and nobody else's draws
    change."""
    monkeypatch.setattr("hpcgnn.ops.row_tiles.EDGE_TILE_BYTES", 1500)
    graph, where, file = stored(comm, session_path, "power law")
    local = graphs.load(file, where.maps["dealt"], comm, cap=9)
    policy = FullHalo(local, comm, HaloBuffers(1 << 14))
    x = torch.ones(local.num_owned, WIDTH, dtype=torch.float64, requires_grad=True)
    before = torch.get_rng_state()
    y = propagate(policy, Rule(lambda src: torch.dropout(src, 0.5, True), "sum", seed=comm.rank), x, None, None)
    y.backward(torch.ones_like(y))
    assert torch.equal(before, torch.get_rng_state())
    # Every kept element of a message counts 2 in y and 2 in the gradient of its source.
    assert comm.total(y.detach().sum()) == pytest.approx(float(comm.total(x.grad.sum())))
    assert comm.total((x.grad % 2).sum()) == 0 and 0 < comm.total(x.grad.sum())


def test_refusals(comm, session_path):
    graph, where, file = stored(comm, session_path, "path")
    local = graphs.load(file, where.maps["dealt"], comm, cap=9)
    policy = FullHalo(local, comm, HaloBuffers(1 << 14))
    x = torch.ones(local.num_owned, WIDTH, dtype=torch.float64, requires_grad=True)
    outside = torch.ones(WIDTH, dtype=torch.float64, requires_grad=True) * 2
    for message, reduce, expected in (
        (lambda src: src, "median", "expected reduce to be of sum, mean, max, min, std"),
        (lambda src: src.sum(), "sum", r"expected messages of shape \(E, F\)"),
        (lambda src: src, "softmax", "must return"),
        (lambda src: src * outside, "sum", "computed outside"),
        (lambda src: [src], "sum", "expected tensors"),
    ):
        with pytest.raises(ValueError, match=expected):
            propagate(policy, Rule(message, reduce), x, None, None)


def test_what_is_kept_of_edges(comm, session_path):
    """One row of each edge for each layer, the rows of nodes and the parameters: neither messages nor the result."""
    graph, where, file = stored(comm, session_path, "random directed")
    local = graphs.load(file, where.maps["dealt"], comm, cap=7, keep_edges=True)
    policy, function = FullHalo(local, comm, HaloBuffers(4 * 7 * 2 * WIDTH * 8)), Messages("sum")
    x = torch.rand(local.num_owned, WIDTH, dtype=torch.float64, requires_grad=True)
    edge = torch.rand(local.inward.num_edges, WIDTH, dtype=torch.float64, requires_grad=True)
    kept = {}

    def keep(tensor):
        if len(tensor):  # else a function was tried with no rows
            kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        after = [edge]
        for _ in range(3):
            each, sums = propagate(policy, Rule(function, None), x, x, after[-1])
            after.append(each)
    parameters = [each for name, each in function.named_parameters() if name == "weight"]
    expected = {each.data_ptr(): each.nbytes for each in (x, *parameters, *after[:3])}
    assert kept == expected and sums.shape == x.shape


@pytest.mark.ranks(2, 3)
def test_shared_edges_and_rows_that_are_made_again(comm, session_path):
    """Layers that hand edges on have one gradient of them; the rows of nodes are not kept. All gradients are those of
    layers by themselves.
    """
    graph, where, file = stored(comm, session_path, "random directed")
    local = graphs.load(file, where.maps["dealt"], comm, cap=7, keep_edges=True)
    policy, function = FullHalo(local, comm, HaloBuffers(4 * 7 * 2 * WIDTH * 8)), Messages("sum")
    draw = torch.Generator().manual_seed(comm.rank)
    drawn = [
        torch.rand(rows, WIDTH, dtype=torch.float64, generator=draw)
        for rows in (local.num_owned, local.inward.num_edges)
    ]
    found, kept = [], set()

    def keep(tensor):
        kept.add(tensor.data_ptr())
        return tensor

    for shared in (False, True):
        x, edge = (each.clone().requires_grad_() for each in drawn)
        total, rows, function.weight.grad = 0, x * 2, None
        made = Remade(rows, lambda x=x: x.detach() * 2) if shared else rows
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            handed = edge
            for _ in range(3):
                y = propagate(policy, Rule(function, "sum", hands_on=shared), made, made, handed)
                handed, y = y if shared else (edge, y)
                total = total + (y * y).sum()
        assert (rows.data_ptr() in kept) != shared or not len(rows)
        kept.clear()
        total.backward()
        found.append((x.grad, edge.grad, function.weight.grad))
    for alone, together in zip(*found, strict=True):
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-9 * max(1, float(alone.abs().amax())))
