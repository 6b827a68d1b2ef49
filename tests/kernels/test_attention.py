"""The attention kernels against a softmax over an edge list in float64, which torch differentiates.

The oracle knows nothing of blocks, of maxima that run or of Philox in vectors; masks come from `oracle.philox`.
"""

from types import SimpleNamespace

import kernel_oracle
import numpy as np
import oracle
import pytest
import torch

from hpcgnn import kernels as front

KEY = 0x0123_4567_89AB_CDEF
SLOPE = 0.2
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
SHAPES = [(1, 40), (4, 64), (4, 32), (8, 8), (3, 5), (2, 1), (1, 1), (6, 2), (5, 7), (2, 19), (9, 16)]  # (H, D)


def mask(case):
    """(edges, H) factors of attention dropout, from the counters as they are documented."""
    if not case.rate:
        return torch.ones(len(case.dst), case.heads, dtype=torch.float64)
    d, s = case.dst_ids.numpy()[case.dst], case.src_ids.numpy()[case.src]
    groups = -(-case.heads // 4)
    words = np.empty((len(d), case.heads))
    for h in range(case.heads):
        counter = np.stack(
            [d % 2**32, s % 2**32, (d >> 32) % 2**16 + (s >> 32) % 2**16 * 2**16, case.copy * groups + h // 4], -1
        )
        words[:, h] = oracle.philox(counter.astype(np.uint32), (KEY % 2**32, KEY >> 32))[:, h % 4]
    return torch.from_numpy((words >= round(case.rate * 2**32)) / (1 - round(case.rate * 2**32) / 2**32))


def make_case(heads, width, num_dst=23, num_src=31, edges=150, seed=0, scale=1.0, rate=0.0):
    """A graph of `dst` and `src`, by destination, then source. Each edge has the number of equal edges before it. The
    case has the layer's inputs and the result's gradient.
    """
    random = np.random.default_rng(seed)
    dst, src = kernel_oracle.edges(num_dst, num_src, edges, random)
    copy = np.zeros(len(dst), np.int64)
    for e in range(1, len(dst)):
        if dst[e] == dst[e - 1] and src[e] == src[e - 1]:
            copy[e] = copy[e - 1] + 1
    torch.manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64).float().double()  # the same values in both types

    case = SimpleNamespace(heads=heads, width=width, dst=dst, src=src, copy=copy, rate=rate)
    case.z, case.a_src = normal(num_src, heads * width), scale * normal(num_src, heads)
    case.a_dst, case.gy = scale * normal(num_dst, heads), normal(num_dst, heads * width)
    ids = torch.from_numpy(random.choice(2**45, num_dst + num_src, replace=False))
    case.dst_ids, case.src_ids = ids[:num_dst], ids[num_dst:]
    return case


def expected(case, shared=False):
    """y (before the heads are averaged), lse, and the gradients of z, a_src and a_dst; all float64.

    With `shared` the layer's result is the mean over heads, and its gradient is the first head's width of case.gy.
    """
    z, a_src, a_dst = (leaf.clone().requires_grad_() for leaf in (case.z, case.a_src, case.a_dst))
    dst, src = torch.from_numpy(case.dst), torch.from_numpy(case.src)
    logit = torch.nn.functional.leaky_relu(a_dst[dst] + a_src[src], SLOPE)
    y, lse = kernel_oracle.attend(logit, z[src].unflatten(1, (case.heads, case.width)), dst, len(a_dst), mask(case))
    if shared:
        (y.unflatten(1, (case.heads, -1)).mean(1) * case.gy[:, : case.width]).sum().backward()
    else:
        (y * case.gy).sum().backward()
    return y.detach(), lse.detach(), z.grad, a_src.grad, a_dst.grad


def blocks_of(rows, columns, bounds, hypersparse, num_rows):
    """(indptr, indices, stored rows, columns) of each range of columns."""
    for low, high in zip(bounds[:-1], bounds[1:]):
        edges = np.flatnonzero((columns >= low) & (columns < high))
        edges = edges[np.lexsort((edges, columns[edges], rows[edges]))]
        indptr, listed = kernel_oracle.stored(rows[edges], num_rows, hypersparse)
        yield indptr, torch.from_numpy((columns[edges] - low).astype(np.int32)), listed, slice(low, high)


def spread(tensor, dtype, gap=3):
    """A copy whose rows are further apart than they are long."""
    wide = torch.full((tensor.shape[0], tensor.shape[1] + gap), torch.nan, dtype=dtype)
    wide[:, : tensor.shape[1]] = tensor
    return wide[:, : tensor.shape[1]]


def bounds_of(size, pieces):
    return np.linspace(0, size, pieces + 1).astype(int)


def forward(case, dtype, pieces=1, hypersparse=False, order=1, bias=None, complete=False, share=None):
    """y and lse, or, given room for the shares, y and the maximum.

    complete: in one pass over a single block, into memory that holds anything.
    """
    n_dst, n_src = len(case.a_dst), len(case.a_src)
    y = spread(torch.zeros(n_dst, case.heads * case.width), dtype)
    running_max = spread(torch.full((n_dst, case.heads), -torch.inf), dtype)
    denominator, lse = torch.zeros(n_dst, case.heads, dtype=dtype), torch.empty(n_dst, case.heads, dtype=dtype)
    for tensor in (y, running_max, denominator) if complete else ():
        tensor.fill_(torch.nan)
    a_dst, source = spread(case.a_dst, dtype), spread(torch.cat([case.z, case.a_src], 1), dtype)
    for indptr, indices, rows, columns in list(
        blocks_of(case.dst, case.src, bounds_of(n_src, pieces), hypersparse, n_dst)
    )[::order]:
        given = {"heads": case.heads, "slope": SLOPE, "rows": rows, "complete": complete}
        given |= {"bias": bias} if complete else {}
        given |= {"dropout": (case.rate, KEY, case.dst_ids, case.src_ids[columns])} if case.rate else {}
        front.attend_forward(y, running_max, denominator, a_dst, source[columns], indptr, indices, **given)
    if not complete:
        front.attend_finish(y, running_max, denominator, lse, bias, share)
        return y, lse
    if share is None:
        return y, running_max - denominator.log()
    share.copy_(denominator)
    return y, running_max


def backward(case, y, lse, dtype, pieces=1, hypersparse=False, shared=False, complete="", remote=None, bias=None):
    """remote: in place of the tensor made of y and lse, which have no bias in them.

    complete: "over anything" into memory that holds anything, "in place" over z_src, of a single block.
    """
    n_dst, n_src, heads = len(case.a_dst), len(case.a_src), case.heads
    gy = case.gy[:, : case.width] / heads if shared else case.gy
    shift = (gy.repeat(1, heads if shared else 1) * y).unflatten(1, (heads, -1)).sum(2)
    remote = spread(torch.cat([gy, case.a_dst, lse, shift], 1) if remote is None else remote, dtype)
    own = spread(torch.cat([case.z, case.a_src], 1), dtype)
    gz, ga_src = spread(torch.zeros(n_src, heads * case.width), dtype), torch.zeros(n_src, heads, dtype=dtype)
    for tensor in (gz, ga_src) if complete else ():
        tensor.fill_(torch.nan)
    if complete == "in place":
        gz, ga_src = own[:, : heads * case.width], own[:, heads * case.width :]
    ga_dst = spread(torch.zeros(n_dst, heads), dtype)
    for indptr, indices, rows, columns in blocks_of(case.src, case.dst, bounds_of(n_dst, pieces), hypersparse, n_src):
        given = {
            "heads": heads,
            "slope": SLOPE,
            "rows": rows,
            "complete": bool(complete),
            "shared": shared,
            "bias": bias,
        }
        given |= {"dropout": (case.rate, KEY, case.dst_ids[columns], case.src_ids)} if case.rate else {}
        front.attend_backward(gz, ga_src, ga_dst[columns], own, remote[columns], indptr, indices, **given)
    return gz, ga_src, ga_dst


def assert_close(actual, wanted, dtype, what, factor=1.0):
    assert actual.dtype == dtype
    finite = torch.isfinite(wanted)
    assert torch.equal(torch.isfinite(actual), finite), what
    assert torch.equal(actual[~finite].double(), wanted[~finite]), what
    error = (actual.double() - wanted)[finite].abs()
    scale = wanted[finite].abs().max().clamp_min(0.1) if finite.any() else 1
    assert error.numel() == 0 or error.max() <= factor * TOLERANCE[dtype] * scale, f"{what}: {error.max() / scale}"


def check(case, dtype, pieces=1, hypersparse=False, shared=False, order=1, factor=1.0):
    y, lse, *gradients = expected(case, shared)
    found_y, found_lse = forward(case, dtype, pieces, hypersparse, order)
    assert_close(found_y, y, dtype, "y", factor)
    assert_close(found_lse, lse, dtype, "lse", factor)
    found = backward(case, y, lse, dtype, pieces, hypersparse, shared)
    for name, one, other in zip(("gz", "ga_src", "ga_dst"), found, gradients):
        assert_close(one, other, dtype, name, factor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("heads, width", SHAPES)
def test_all_shapes(kernels, heads, width, dtype):
    check(make_case(heads, width, rate=0.4), dtype)
    check(make_case(heads, width, seed=1), dtype, pieces=3, hypersparse=True)
    check(make_case(heads, width, rate=0.3), dtype, pieces=3, hypersparse=True, shared=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("heads, width", [(4, 64), (3, 5), (1, 40)])
def test_a_complete_block_is_begun_and_ended_in_one_pass(kernels, threads, heads, width, dtype):
    """To the same bits as step by step; rows without edges are the bias."""
    empty = make_case(heads, width, edges=400, rate=0.3)
    for case in (empty, big(heads=heads, width=width)):
        bias = torch.linspace(-1, 1, heads * width, dtype=dtype)
        shares, step = torch.empty(2, len(case.a_dst), heads, dtype=dtype), {"bias": bias}
        by_steps = forward(case, dtype, share=shares[0], **step)
        at_once = forward(case, dtype, share=shares[1], complete=True, **step)
        assert all(map(torch.equal, (*by_steps, shares[0]), (*at_once, shares[1])))
        lse, found = (forward(case, dtype, complete=complete, **step)[1] for complete in (False, True))
        torch.testing.assert_close(found, lse)
        assert case is not empty or torch.equal(at_once[0][3], bias) and found[3].isposinf().all()


@pytest.mark.parametrize("how", ["over anything", "in place"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("heads, width, shared", [(4, 64, False), (3, 5, True), (1, 40, False), (2, 16, True)])
def test_gradients_of_a_complete_block_may_take_the_place_of_what_they_are_made_of(
    kernels, threads, heads, width, shared, dtype, how
):
    """To the same bits; rows without out-edges are zero. A hub is read by all its chunks before it is overwritten. With
    one thread each chunk is a wave of its own.
    """
    cases = [make_case(heads, width, edges=400, rate=0.3)]
    if how == "in place" and dtype == torch.float32:
        cases.append(big(heads=heads, width=width))
    for case in cases:
        y, lse = forward(case, torch.float64)
        wanted = backward(case, y, lse, dtype, shared=shared)
        found = backward(case, y, lse, dtype, shared=shared, complete=how)
        assert all(torch.equal(one, other) for one, other in zip(found, wanted))


@pytest.mark.parametrize("num_hubs, chunks", [(1, 40), (3, 21)])
def test_gradients_in_place_of_complete_hubs_that_take_several_waves(kernels, threads, num_hubs, chunks):
    """With two threads a wave has 16 chunks of 8192 edges; it may neither begin nor end a hub, or end one and begin
    another.
    """
    edges, case = chunks * 8192 + 5, make_case(2, 4, 40, 5, edges=10)
    case.src = np.repeat(np.arange(num_hubs), edges)
    case.dst = np.concatenate([np.sort(np.random.default_rng(k).integers(0, 40, edges)) for k in range(num_hubs)])
    y, lse = torch.zeros(40, 8, dtype=torch.float64), torch.full((40, 2), 11.0, dtype=torch.float64)
    wanted = backward(case, y, lse, torch.float64)
    found = backward(case, y, lse, torch.float64, complete="in place")
    assert wanted[0][:num_hubs].abs().min() > 0
    assert all(torch.equal(one, other) for one, other in zip(found, wanted))


def test_a_complete_hub_that_takes_several_waves(kernels):
    """A wave holds 256 chunks of 8192 edges; a row with more edges is merged more than once, but begun and ended
    once.
    """
    edges = 257 * 8192
    case = make_case(1, 1, 5, 40, edges=10)
    case.dst, case.src = np.full(edges, 2), np.sort(np.random.default_rng(1).integers(0, 40, edges))
    bias = torch.full((1,), 0.5, dtype=torch.float64)
    y, lse = forward(case, torch.float64, bias=bias)
    found_y, found_lse = forward(case, torch.float64, bias=bias, complete=True)
    assert torch.equal(found_y, y) and torch.equal(found_lse, lse)
    logits = torch.nn.functional.leaky_relu(case.a_src[case.src, 0] + case.a_dst[2, 0], SLOPE)
    wanted = (torch.softmax(logits, 0) * case.z[case.src, 0]).sum() + 0.5
    assert abs(found_y[2, 0] - wanted) < 1e-9 and abs(found_lse[2, 0] - torch.logsumexp(logits, 0)) < 1e-9


@pytest.mark.parametrize("order", [1, -1])
def test_a_maximum_that_rises_from_block_to_block_and_one_that_falls(kernels, order):
    case = make_case(4, 8)
    case.a_src = case.a_src + torch.linspace(-40, 40, len(case.a_src), dtype=torch.float64)[:, None]
    check(case, torch.float64, pieces=5, order=order)
    check(case, torch.float32, pieces=5, order=order, factor=10)


def distinct(case):
    """The case without edges that are there twice."""
    ends = np.unique(np.stack([case.dst, case.src], 1), axis=0)
    case.dst, case.src, case.copy = ends[:, 0], ends[:, 1], np.zeros(len(ends), np.int64)
    return case


def as_a_layer(case, dtype, bias=None, pieces=1, shared=False):
    """The gradients (gz, ga_src, ga_dst) by the maximum and the share, and by a D of y with a bias, as layers have
    them.
    """
    n, heads, width = len(case.a_dst), case.heads, case.width
    share, gy = torch.zeros(n, heads, dtype=dtype), case.gy.to(dtype)
    y, lse = forward(case, dtype, pieces, bias=bias, share=None if shared else share)
    remote = torch.cat([gy[:, :width] / heads if shared else gy, case.a_dst.to(dtype), lse, share], 1)
    sent, dots = remote[:, : -3 * heads], remote[:, -heads:]
    if shared:
        for h in range(heads):
            front.elu_gradient(sent, sent, None, y[:, h * width : (h + 1) * width], dots[:, h : h + 1])
    else:
        front.elu_gradient(sent, sent, None, y, dots, bias=bias, scaled=True)
    return backward(case, y, lse, dtype, pieces, shared=shared, remote=remote, bias=bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("heads, width", SHAPES)
def test_one_edge_that_outweighs_all_others(kernels, heads, width, dtype):
    """Then no logit has a gradient, and none may come of rounding, which is as large as the features. The cases have a
    bias or none, dropout, averaged heads, or several blocks.
    """
    for rate, bias, shared, pieces in ((0, 0, 0, 1), (0, 1, 0, 3), (0.4, 1, 0, 2), (0.4, 0, 1, 1), (0, 0, 1, 2)):
        case = distinct(make_case(heads, width, rate=rate, scale=1e12))
        case.z *= 1e12
        added = torch.linspace(-3e11, 3e11, heads * width, dtype=dtype) if bias else None
        gz, ga_src, ga_dst = as_a_layer(case, dtype, added, pieces, bool(shared))
        assert not ga_src.any() and not ga_dst.any(), (rate, bias, shared)
        assert_close(gz, expected(case, bool(shared))[2], dtype, "gz")


def big(seed=0, heads=4, width=12):
    case = make_case(heads, width, 2500, 2500, edges=40000, seed=seed, rate=0.1)
    hub = np.repeat([[7, 9]], 9000, 0)  # an edge 9000 times over: a hub both ways
    hub[::2, 0], hub[1::2, 1] = np.arange(4500) % 2500, np.arange(4500) % 2500
    dst, src = np.append(case.dst, hub[:, 0]), np.append(case.src, hub[:, 1])
    dst[:20000] = np.where(np.arange(20000) < 9500, 11, dst[:20000])
    src[20000:30000] = 13
    order = np.lexsort((src, dst))
    case.dst, case.src = dst[order], src[order]
    return case
