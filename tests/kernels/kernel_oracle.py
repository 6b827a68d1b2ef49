"""Slow, obvious versions of the kernels in numpy and torch, and graphs for them; nothing of the package is imported."""

import numpy as np
import scipy.sparse
import torch


def block(num_stored, num_sources, degree, generator):
    """(indptr, indices) with about a fifth of the rows empty."""
    degrees = generator.poisson(degree, num_stored) * (generator.random(num_stored) > 0.2)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return torch.from_numpy(indptr), torch.from_numpy(generator.integers(0, num_sources, indptr[-1], dtype=np.int32))


def edges(num_dst, num_src, number, random):
    """(dst, src), by destination, then source: some edges twice, nodes without edges in the middle and at the end."""
    dst, src = random.integers(0, num_dst - 2, number), random.integers(0, num_src - 2, number)
    dst[dst == 3] = 4
    dst, src = np.append(dst, dst[: number // 5]), np.append(src, src[: number // 5])
    order = np.lexsort((src, dst))
    return dst[order], src[order]


def stored(rows, num_rows, hypersparse):
    """(indptr, rows) of a block whose edges have these rows, in their order; hypersparse: of rows with edges alone."""
    count = np.bincount(rows, minlength=num_rows)
    listed = np.flatnonzero(count) if hypersparse else np.arange(num_rows)
    indptr = torch.from_numpy(np.append(0, np.cumsum(count[listed])))
    return indptr, torch.from_numpy(listed.astype(np.int32)) if hypersparse else None


def attend(logit, value, dst, n, mask):
    """(y, lse) of n rows: the softmax of (edges, heads) logits, masked, over (edges, heads, width) values."""
    where = dst[:, None].expand_as(logit)
    top = torch.full((n, logit.shape[1]), -torch.inf, dtype=torch.float64)
    top = top.scatter_reduce(0, where, logit.detach(), "amax")
    weight = (logit - top[dst]).exp()
    total = torch.zeros_like(top).index_add(0, dst, weight)
    alpha = weight / total[dst] * mask
    y = torch.zeros(n, *value.shape[1:], dtype=torch.float64).index_add(0, dst, value * alpha[..., None])
    return y.flatten(1), torch.where(total > 0, top + total.log(), torch.inf)


def gather(y, x, indptr, indices, rows, weight, source_scale, row_scale, accumulate):
    """The right y, in float64 (arrays are float64; indptr starts anywhere)."""
    num_stored = len(indptr) - 1
    used = indices[: indptr[-1]]
    values = np.ones(len(used)) if weight is None else weight[: indptr[-1]].copy()
    if source_scale is not None:
        values *= source_scale[used]
    values[: indptr[0]] = 0
    product = scipy.sparse.csr_matrix(
        (values[indptr[0] :], used[indptr[0] :], indptr - indptr[0]), shape=(num_stored, len(x))
    )
    sums = product @ x
    target = np.arange(num_stored) if rows is None else rows
    result = y.copy()
    if row_scale is not None:
        sums = sums * row_scale[target][:, None]
    result[target] = result[target] + sums if accumulate else sums
    return result


def close(found, wanted, tolerance):
    """Hold tensors against those in float64, of each by its largest element."""
    for made, right in zip(found, wanted, strict=True):
        size = right.abs().max().clamp(min=1)
        torch.testing.assert_close(made.double() / size, right / size, rtol=0, atol=tolerance)
