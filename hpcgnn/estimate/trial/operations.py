"""The operations of an epoch: their kind, width, and amount.

The amounts of an operation are summed over its calls. They grow in a straight line with the rows and edges of a rank;
the width of rows and the shape of products do not.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.plugins.live_tensors import tensors_of


class Operation(NamedTuple):
    """An operation.

    Attributes:
        name: name of a kernel, or `product`, or `torch`.
        type: type of its numbers, or torch's name of it.
        width, depth: columns of a row, or of a product (rows, depth) times (depth, width); for attention, columns and
            heads.
    """

    name: str
    type: str
    width: int = 0
    depth: int = 0


#: Kernels whose unit is an edge, for which a row is read at random. A product's unit is a row, all others' a number.
EDGE_KERNELS = {"gather", "gather_largest", "gather_matching", "attend_forward", "attend_backward"}
EDGE_KERNELS |= {"attend_forward_complete", "attend_backward_complete", "score_forward", "score_backward"}
EDGE_KERNELS |= {"message_forward", "message_backward"}
#: Gathers along sparse features: of rows of weights for the stored entries of a node, and of gradients for a column's.
ENTRIES, COLUMNS = "gather_entries", "gather_columns"
EDGE_KERNELS |= {ENTRIES, COLUMNS}
#: The system's work to hand out a page of memory and to take it back. Large tensors return to the system when they are
#: freed (plugins/memory_profile.py), so pages are handed out in each epoch. Its rows are pages; no call counts.
PAGES = Operation("page", "")
#: An Operation and the increments of its amounts, in addition to one call: rows, and edges or bytes.
Told = tuple[Operation, tuple[float, float]]
# Operations of torch that only look at memory another way.
_VIEWS = {"view", "_unsafe_view", "t", "transpose", "expand", "slice", "select", "as_strided", "detach", "alias"}
_VIEWS |= {"unsqueeze", "squeeze", "permute", "split", "split_with_sizes", "reshape", "empty", "empty_like", "set_"}
_VIEWS |= {"new_empty", "_local_scalar_dense", "lift_fresh", "is_same_size", "unbind", "empty_strided", "resize_"}
_PRODUCTS = {"mm": 0, "addmm": 1, "addmm_": 1, "bmm": 0, "_addmm_activation": 1}

# Operations that read, or change, only some rows of their first tensor: as many as there are in the others.
_SOME_ROWS = {"index_select", "index", "gather", "searchsorted"}
_SOME_ROWS |= {"index_add_", "index_copy_", "index_put_", "_index_put_impl_", "scatter_", "scatter_add_"}


def of_kernel(name: str, arguments: tuple[Any, ...], features: object = None) -> Told:
    """Describe a call of a kernel (kernels/native.py). features: the nodes' features, sparse or not."""
    told = _KERNELS.get(name, _elementwise)(name, arguments)
    if name == "gather" and isinstance(features, SparseRows):
        for kind, indptr in ((ENTRIES, features.indptr), (COLUMNS, features.t_indptr)):
            if any(each is indptr for each in arguments):
                return told[0]._replace(name=kind), told[1]
    return told


def _type(tensor: torch.Tensor) -> str:
    return {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16"}.get(tensor.dtype, "other")


def _gather(name: str, arguments: tuple[Any, ...]) -> Told:
    """y, x, indptr first; or y, count or own, x, indptr."""
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    pointer = next(index for index, each in enumerate(tensors) if each.dtype == torch.int64 and each.dim() == 1)
    x, indptr = tensors[pointer - 1], tensors[pointer]
    edges = int(indptr[-1] - indptr[0])
    return Operation(name, _type(x), x.shape[1]), (len(indptr) - 1, edges)


def _pack(name: str, arguments: tuple[Any, ...]) -> Told:
    out, x = arguments[0], arguments[1]
    return Operation(name, _type(x), x.shape[1]), (len(out), 0.0)


def _add_rows(name: str, arguments: tuple[Any, ...]) -> Told:
    out, index = arguments[0], arguments[1]
    return Operation(name, _type(out), out.shape[1]), (len(index), 0.0)


def _narrow(name: str, arguments: tuple[Any, ...]) -> Told:
    """narrow(out, factors, x, …), of whose rows x may have many more; encode(codes, steps, x, …); widen and
    decode(out, …).
    """
    rows, x = arguments[0], arguments[2 if name in ("narrow", "encode") else 0]
    return Operation(name, _type(x)), (float(len(rows) * x.shape[1]), 0.0)


def _dropout(name: str, arguments: tuple[Any, ...]) -> Told:
    """dropout(out, x, …), of whose rows x may have many more."""
    return Operation(name, _type(arguments[0])), (float(arguments[0].numel()), 0.0)


def _attend(name: str, arguments: tuple[Any, ...]) -> Told:
    """attend_forward(y, …, indptr, indices, heads, …), attend_backward(gz, …, indptr, indices, heads, …)."""
    indptr, heads = arguments[5], arguments[7]
    columns = arguments[0].shape[1]
    complete = arguments[12 if name == "attend_forward" else 14]  # rows are then written once
    kind = name + ("_complete" if complete else "")
    return Operation(kind, _type(arguments[0]), columns, heads), (len(indptr) - 1, int(indptr[-1] - indptr[0]))


def _attend_scores(name: str, arguments: tuple[Any, ...]) -> Told:
    """attend(function, sums, indptr, tensors, heads, …)."""
    function, sums, indptr, _, heads = arguments[:5]
    kind = "score_backward" if "backward" in function else "score_forward"
    edges = int(indptr[-1] - indptr[0])
    return Operation(kind, _type(sums), sums.shape[1], heads), (len(indptr) - 1, edges)


def _messages(name: str, arguments: tuple[Any, ...]) -> Told:
    """messages(function, tensors, …)."""
    function, tensors = arguments[:2]
    x, indptr = tensors["x"], tensors["indptr"]
    return Operation(function.removeprefix("hg_"), _type(x), x.shape[1]), (len(indptr) - 1, int(indptr[-1] - indptr[0]))


def _multiply(name: str, arguments: tuple[Any, ...]) -> Told:
    _, x, weight = arguments[:3]
    return Operation(name, _type(x), weight.shape[1], weight.shape[0]), (len(x), 0.0)


def _project(name: str, arguments: tuple[Any, ...]) -> Told:
    _, x, weight, rule = arguments[:4]
    return Operation(name + ("" if rule is None else "_elu"), _type(x), weight.shape[1], weight.shape[0]), (len(x), 0.0)


def _project_backward(name: str, arguments: tuple[Any, ...]) -> Told:
    _, x, weight, rule, gx = arguments[:5]
    kind = name + ("" if rule is None else "_elu") + ("" if gx is not None else "_weights")
    return Operation(kind, _type(x), weight.shape[1], weight.shape[0]), (len(x), 0.0)


def _drop_edges(name: str, arguments: tuple[Any, ...]) -> Told:
    """Describe drop_edges(indptr, …, kept_indices, …).

    Two passes draw for each edge, as if for the four numbers of a counter; a call that only counts has one pass.
    """
    indptr, kept_indices = arguments[0], arguments[11]
    passes = 1 if kept_indices is None else 2
    return Operation(name, "fp32"), (4.0 * passes * int(indptr[-1] - indptr[0]), 0.0)


def _elementwise(name: str, arguments: tuple[Any, ...]) -> Told:
    """Anything that goes over rows: by the largest tensor that is given."""
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    most = max(tensors, key=torch.Tensor.numel)
    return Operation(name, _type(most)), (float(most.numel()), 0.0)


_KERNELS: dict[str, Callable[[str, tuple[Any, ...]], Told]] = {
    "gather": _gather,
    "gather_largest": _gather,
    "gather_matching": _gather,
    "pack": _pack,
    "add_rows": _add_rows,
    "narrow": _narrow,
    "widen": _narrow,
    "encode": _narrow,
    "decode": _narrow,
    "dropout": _dropout,
    "attend_forward": _attend,
    "attend_backward": _attend,
    "attend": _attend_scores,
    "messages": _messages,
    "drop_edges": _drop_edges,
    "multiply": _multiply,
    "project": _project,
    "project_backward": _project_backward,
}


def of_torch(operation: Any, args: tuple[Any, ...], result: Any) -> Told | None:
    """Describe a torch operation: a product, or bytes read and written; None for views."""
    name = operation.__name__.split(".")[0]
    if name in _VIEWS:
        return None
    if name in _PRODUCTS:
        left, right = (args[_PRODUCTS[name]], args[_PRODUCTS[name] + 1])
        rows, depth, width = math.prod(left.shape[:-1]), left.shape[-1], right.shape[-1]
        # The gradient of weights sums over rows: the long side is the depth.
        rows, depth = (depth, rows) if depth > rows else (rows, depth)
        return Operation("product", _type(left), width, depth), (rows, 0.0)
    if name in _SOME_ROWS:
        given, made = tensors_of(args[1:]), tensors_of(result)
        if any(each.dtype == torch.bool for each in given):
            name += "_mask"  # torch first counts the chosen rows
        inside = name.endswith("_")  # it reads the new values and the old ones
        moved = sum(each.nbytes for each in given) + sum(each.nbytes for each in (given if inside else 2 * made))
    else:
        moved = sum(each.nbytes for each in tensors_of((args, result)))
    return Operation("torch", name), (0.0, float(moved))
