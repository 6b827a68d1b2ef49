"""A rank's share of the graph as a graph of its own, in which nothing is remote: with its halo, or without.

`with_halo` takes the halo's nodes in as nodes without in-edges: whatever is computed on it for the own nodes is what
the whole graph would give, as long as the rows of the halo are at hand. Degrees stay those of the whole graph.
`induced` keeps own nodes and the edges between them, with the degrees that these make. All operators run on either as
on a graph of one rank.
"""

import numpy as np
import torch

from hpcgnn.exchange.plan import HaloPlan, gather_halo
from hpcgnn.graph.blocks import own_block
from hpcgnn.graph.local import Adjacency, EdgeList, LocalGraph, SparseRows, sparse_rows
from hpcgnn.graph.sums import weight_sums

_NO_HALO = HaloPlan(0, 1, [], [], [], np.zeros(1, np.int64))


def with_halo(local, comm):
    """A LocalGraph of the own nodes followed by those of the halo of the in-edges, in halo order. Collective (`plan`).

    Its structure is a second copy of the rank's in-edges, and their transpose: linear in the edges.
    """
    plan, owned = local.inward.plan, local.num_owned
    nodes = owned + plan.num_halo
    rows, columns, weight, edge = _edges(local.inward, owned)
    kept = local.inward.edges
    degree_in = torch.cat([local.inward.degree, local.inward.degree.new_zeros(plan.num_halo)])
    degree_out = torch.cat([local.outward.degree, gather_halo(plan, local.outward.degree, comm)])
    kinds = local.node_type
    return LocalGraph(
        _adjacency(nodes, rows, columns, weight, edge, degree_in, kept),
        _adjacency(nodes, columns, rows, weight, edge, degree_out, kept),
        local.features,
        local.labels,
        local.split,
        torch.cat([local.original_id, gather_halo(plan, local.original_id, comm)]),
        local.num_nodes,
        local.num_classes,
        local.multi_label,
        None if kinds is None else torch.cat([kinds, gather_halo(plan, kinds, comm)]),
    )


def induced(local):
    """The LocalGraph of the own nodes and the edges between them. Not collective. A node whose weights sum to less than
    0 there is as one without edges under symmetric normalisation.
    """
    inward = _alone(local.inward)
    outward = inward if local.outward is local.inward else _alone(local.outward)
    return LocalGraph(
        inward,
        outward,
        local.features,
        local.labels,
        local.split,
        local.original_id,
        local.num_owned,
        local.num_classes,
        local.multi_label,
        local.node_type,
    )


def _edges(adjacency, owned):
    """(rows, columns int64 (E,), weight, place in the edge list or None) of all edges; columns of the halo count on
    from the own nodes.
    """
    blocks = (adjacency.own, *adjacency.halo)
    stored = [torch.arange(owned) if block.rows is None else block.rows.long() for block in blocks]
    rows = torch.cat([torch.repeat_interleave(s, torch.diff(b.indptr)) for s, b in zip(stored, blocks)])
    shifts = [0 if b.first_column is None else owned + b.first_column for b in blocks]
    columns = torch.cat([b.indices.long() + shift for b, shift in zip(blocks, shifts)])
    weight = None if adjacency.own.weight is None else torch.cat([b.weight for b in blocks])
    edge = None if adjacency.own.edge is None else torch.cat([b.edge for b in blocks])
    return rows, columns, weight, edge


def _adjacency(nodes, rows, columns, weight, edge, degree, kept):
    order = torch.from_numpy(np.lexsort((columns.numpy(), rows.numpy())))  # equal edges stay neighbours
    sorted_columns = columns[order].to(torch.int32).numpy()
    block = own_block(
        nodes, rows[order].numpy(), sorted_columns, *(None if t is None else t[order] for t in (weight, edge))
    )
    return Adjacency(block, [], _NO_HALO, degree, kept)


def _alone(adjacency):
    block, kept = adjacency.own, adjacency.edges
    rows = torch.repeat_interleave(torch.arange(len(block.indptr) - 1), torch.diff(block.indptr))
    weight = torch.ones(block.num_edges) if block.weight is None else block.weight
    degree = torch.from_numpy(weight_sums(rows.numpy(), weight.double().numpy(), len(block.indptr) - 1))
    if kept is not None:
        taken = block.edge.long()
        kept = EdgeList(len(taken), *(None if t is None else t[taken] for t in (kept.weight, kept.type)))
        place = torch.arange(len(taken), dtype=block.edge.dtype)
        block = type(block)(block.indptr, block.indices, block.rows, block.weight, None, place)
    return Adjacency(block, [], _NO_HALO, degree, kept)


def halo_rows(stream, x, kind):
    """A kept copy of the halo's rows of x (n_p, F), in halo order: (halo rows, F). Collective; traffic booked as
    `kind`.
    """
    kept = x.new_empty(stream.plan.num_halo, x.shape[1])
    for block, rows, _, _ in stream(x.contiguous(), kind=kind):
        if block is not stream.own:
            kept[block.first_column : block.first_column + len(rows)] = rows
    return kept


def sparse_with_halo(features, plan, comm, kind):
    """SparseRows of the own rows followed by the halo's, sent as they are stored: 4 bytes for a row and 8 (fp64: 12)
    for an entry, or 4 for an entry where all entries of the graph are equal. Collective. One peer at a time, so that
    little is packed at once.
    """
    ends = torch.tensor([float("inf"), -float("inf")], dtype=torch.float64)
    if len(features.data):
        ends = torch.stack([features.data.min(), features.data.max()]).double()
    largest = comm.allreduce_(torch.stack([-ends[0], ends[1]]), "plan", "max")
    alike = bool(largest[0] == -largest[1])
    lengths, columns, data = [torch.diff(features.indptr)], [features.indices], [features.data]
    for offset, (count, wanted) in enumerate(zip(plan.receive_rows, plan.send_rows), start=1):
        dest, source = plan.dest(offset), plan.source(offset)
        sizes, entries = _picked(features, wanted.long())
        arriving = torch.zeros(count, dtype=torch.int32)
        _exchange(comm, kind, sizes.int(), dest, arriving, source)
        total = int(arriving.sum())
        lengths.append(arriving.long())
        columns.append(torch.empty(total, dtype=features.indices.dtype))
        _exchange(comm, kind, features.indices[entries], dest, columns[-1], source)
        data.append(features.data.new_full((total,), float(largest[1])) if alike else features.data.new_empty(total))
        if not alike:
            _exchange(comm, kind, features.data[entries], dest, data[-1], source)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(lengths).cumsum(0)])
    return sparse_rows(
        indptr.numpy(), torch.cat(columns).numpy(), torch.cat(data).numpy(), features.num_columns, features.data.dtype
    )


def _picked(features: SparseRows, rows):
    """(entries of each of these rows, where the entries stand)."""
    sizes = torch.diff(features.indptr)[rows]
    first = torch.repeat_interleave(features.indptr[rows] - (sizes.cumsum(0) - sizes), sizes)
    return sizes, first + torch.arange(len(first))


def _exchange(comm, kind, outgoing, dest, incoming, source):
    requests = [comm.irecv(incoming, source, 3, kind)] if len(incoming) else []
    requests += [comm.isend(outgoing.contiguous(), dest, 3, kind)] if len(outgoing) else []
    comm.wait(requests, kind)
