"""Own rows of all ranks put together in the order of original node ids, so that tests compare whole matrices."""

import numpy as np
import torch


def whole(comm, local, rows):
    """(n, …) array on every rank from own rows (n_p, …), float64 or whatever their type is."""
    parts = comm.allgather_object((local.original_id.numpy(), rows.detach().numpy()))
    result = np.empty((local.num_nodes, *parts[0][1].shape[1:]), parts[0][1].dtype)
    seen = np.zeros(local.num_nodes, np.int64)
    for ids, values in parts:
        result[ids] = values
        seen[ids] += 1
    assert (seen == 1).all(), "every node must be owned by exactly one rank"
    return result


def check_rows(comm, local, found, expected, tolerance=1e-9):
    """That own rows of all ranks are the whole matrix (n, …) of an oracle."""
    np.testing.assert_allclose(whole(comm, local, found), np.asarray(expected), rtol=0, atol=tolerance)


def both_ways(comm, local, function, x, gy):
    """Own rows of function(x) and of the gradient of x, and this rank's traffic; x, gy: matrices of all nodes."""
    mine = torch.as_tensor(x)[local.original_id].detach().requires_grad_()
    comm.ledger.take()
    y = function(mine)
    y.backward(torch.as_tensor(gy)[local.original_id])
    return y, mine.grad, comm.ledger.take()


def sent_both_ways(traffic):
    """Bytes that this rank sent [forwards, backwards], from a ledger's traffic."""
    return [traffic[kind].bytes_sent if kind in traffic else 0 for kind in ("halo_forward", "halo_backward")]
