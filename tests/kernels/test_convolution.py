"""A convolution in one call has the bits of its kernels one by one, for every number of threads."""

import pytest
import torch

from hpcgnn import kernels

ROWS, TILE, D_IN, D_OUT = 2300, 512, 48, 40


@pytest.fixture
def given():
    if not kernels.convolves():
        pytest.skip("products are torch's")
    g = torch.Generator().manual_seed(1)
    degree = torch.randint(0, 9, (ROWS,), generator=g)
    degree[700] = 9000  # a hub
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    indices = torch.randint(0, ROWS, (int(indptr[-1]),), generator=g, dtype=torch.int32)
    scale, rows = torch.rand(ROWS, generator=g), torch.rand(ROWS, generator=g)

    def edges(x):
        return kernels.Gathering(x, indptr, indices, None, scale, rows)

    def normal(*shape):
        return torch.randn(*shape, generator=g)

    outputs = torch.nonzero(torch.rand(ROWS, generator=g) < 0.3)[:, 0].to(torch.int32)
    return edges, normal, outputs


def gathered(edges):
    sums = torch.empty(len(edges.indptr) - 1, edges.x.shape[1])
    scales = {"source_scale": edges.source_scale, "row_scale": edges.row_scale}
    kernels.gather(sums, edges.x, edges.indptr, edges.indices, **scales)
    return sums


dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("first", [False, True])
@dtypes
def test_forwards(given, set_threads, count, pruned, first, dtype):
    edges, normal, outputs = given
    x, neighbour, own, bias = normal(ROWS, D_IN).to(dtype), normal(D_IN, D_OUT), normal(D_IN, D_OUT), normal(D_OUT)
    sent, wide = x, torch.empty(ROWS, D_OUT)
    if first:
        kernels.multiply(wide, x, neighbour)
        sent = wide.to(dtype)
    of = edges(sent)
    if pruned:
        few = len(outputs)
        of = of._replace(indptr=of.indptr[: few + 1], row_scale=of.row_scale[:few])
    sums = gathered(of)
    expected = sums + bias if first else torch.empty(len(sums), D_OUT)
    if not first:
        kernels.multiply(expected, sums, neighbour, bias)
    kernels.multiply(expected, x[outputs] if pruned else x, own, add=True)
    set_threads(count)
    out = torch.empty_like(wide, dtype=dtype)
    kernels.convolve(out, x, None, own=neighbour)
    assert not first or torch.equal(out, sent)
    for aggregate in (of, sums):
        y = torch.empty_like(expected, dtype=dtype)
        weight, where = None if first else neighbour, outputs if pruned else None
        kernels.convolve(y, x, aggregate, neighbour=weight, own=own, bias=bias, outputs=where)
        torch.testing.assert_close(y, expected.to(dtype), rtol=0, atol=0)


def sliced(edges, first, last):
    return edges._replace(indptr=edges.indptr[first : last + 1], row_scale=edges.row_scale[first:last])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@dtypes
def test_backwards(given, set_threads, count, pruned, relu, dtype):
    edges, normal, outputs = given
    x, neighbour, own = normal(ROWS, D_IN).to(dtype), normal(D_IN, D_OUT), normal(D_IN, D_OUT)
    gy = normal(len(outputs) if pruned else ROWS, D_OUT).to(dtype)
    of = edges(normal(ROWS, D_OUT).to(dtype))
    expected = [torch.empty(ROWS, D_IN), torch.zeros(D_IN, D_OUT), torch.zeros(D_IN, D_OUT), torch.zeros(D_OUT)]
    gx, g_neighbour, g_own, g_bias = expected
    t = gathered(of)
    for start in range(0, ROWS, TILE):
        at = slice(start, start + TILE)
        kernels.project_backward(gx[at], g_neighbour, x[at], t[at], neighbour)
        if not pruned:
            kernels.project_backward(gx[at], g_own, x[at], gy[at], own, y_sums=g_bias, add=True)
            continue
        mine = (outputs >= start) & (outputs < start + TILE)
        place = outputs[mine]
        beside = torch.empty(len(place), D_IN)
        kernels.project_backward(beside, g_own, x[place], gy[mine], own, y_sums=g_bias)
        kernels.add_rows(gx, place, beside, distinct=True)
    expected[0] = gx.to(dtype)
    if relu:
        kernels.relu_gradient(expected[0], gx.clone(), x, 2.0)
    set_threads(count)
    memory, spare, taken, apart = (torch.empty(TILE, width) for width in (D_OUT, D_IN, D_IN, D_IN))
    for aggregate in (of, t):
        rows = x.clone()
        out = rows if relu else torch.empty_like(x)
        found = [out, *(torch.zeros_like(each) for each in expected[1:])]
        tensors = {"neighbour": neighbour, "own": own, "outputs": outputs if pruned else None, "memory": memory}
        tensors |= {"spare": spare if relu or dtype != torch.float32 else None}
        tensors |= {"taken": taken, "apart": apart if pruned else None}
        tensors |= dict(zip(("g_neighbour", "g_own", "g_bias"), found[1:], strict=True))
        for first, last in ((0, 2 * TILE), (2 * TILE, ROWS)):  # as interior rows come apart from the others
            part = aggregate[first:last] if aggregate is t else sliced(aggregate, first, last)
            scale, mine = 2.0 if relu else None, {"gx": out[first:last], "first": first}
            kernels.convolve_backward(gy, rows[first:last], part, TILE, scale, **mine, **tensors)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
