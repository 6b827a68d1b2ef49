"""The compiled library's types and functions, as ctypes is to know them, and how tensors become arguments."""

import ctypes
from ctypes import POINTER, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

import torch

#: Codes of the element types in C are positions in this list; likewise for paths (narrowest first) and faults.
ELEMENT_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
VECTOR_PATHS = ("baseline", "avx2", "avx512")
SUMMED_ROWS = 512  # HG_SUMMED_ROWS of native/attention.h
BLOCK_FAULTS = ("", "indptr_start", "indptr_order", "indptr_end", "row_range", "row_order", "index_range")


def _fields(*groups):
    """[(name, type)] of groups (type, "names")."""
    return [(name, kind) for kind, names in groups for name in names.split()]


class GatherArguments(ctypes.Structure):
    """hg_gather_args of native/hg.h, field by field."""

    _fields_ = _fields(
        (c_void_p, "x y indptr indices rows weight source_scale row_scale"),
        (c_int64, "num_rows width x_stride y_stride"),
        (c_int32, "x_type y_type accumulate"),
    )


class ExtremeArguments(ctypes.Structure):
    """hg_extreme_args of native/hg.h, field by field."""

    _fields_ = _fields(
        (c_void_p, "x y count indptr indices rows"),
        (c_int64, "num_rows width x_stride y_stride count_stride"),
        (c_int32, "type"),
    )


class AttentionArguments(ctypes.Structure):
    """hg_attention_args of native/attention.h, field by field."""

    _fields_ = _fields(
        (c_void_p, "indptr indices rows"),
        (c_void_p, "streamed own sums maximum denominator ga_src ga_dst edge_term g_edge_term row_ids column_ids bias"),
        (c_int64, "num_rows heads head_width streamed_stride own_stride sums_stride maximum_stride"),
        (c_int64, "denominator_stride ga_src_stride ga_dst_stride edge_term_stride g_edge_term_stride"),
        (c_double, "slope scale"),
        (c_uint64, "key"),
        (c_uint32, "threshold"),
        (c_int32, "shared complete type"),
    )


class ProjectionArguments(ctypes.Structure):
    """hg_projection_args of native/projection.h, field by field."""

    _fields_ = _fields(
        (c_void_p, "x weight y gx g_weight dots bias sums y_sums ids"),
        (c_int64, "rows depth width heads x_stride y_stride gx_stride dots_stride weight_down weight_across"),
        (c_double, "scale"),
        (c_uint64, "key"),
        (c_uint32, "threshold"),
        (c_int32, "elu rounded add scaled x_type y_type"),
    )


#: {name: (type of the result, types of the arguments)}
SIGNATURES = {
    "hg_supports": (c_int, [c_int]),
    "hg_gather": (c_int, [c_int, c_int, POINTER(GatherArguments)]),
    "hg_gather_largest": (None, [c_int, c_int, POINTER(ExtremeArguments)]),
    "hg_gather_matching": (None, [c_int, c_int, POINTER(ExtremeArguments)]),
    "hg_attend_forward": (c_int, [c_int, c_int, POINTER(AttentionArguments)]),
    "hg_attend_backward": (c_int, [c_int, c_int, POINTER(AttentionArguments)]),
    "hg_probe": (c_double, [c_int, c_int, c_void_p, c_int64, c_int64, c_void_p, c_int64]),
    "hg_pack": (
        None,
        [c_int, c_int, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int64, c_void_p],
    ),
    "hg_philox": (None, [c_int, c_uint64, c_void_p, c_int64, c_void_p]),
    "hg_random_words": (None, [c_int, c_int, c_uint64, c_void_p, c_int64, c_int64, c_void_p]),
    "hg_dropout": (
        None,
        [c_int, c_int, c_uint64, c_uint32, c_double, c_int]
        + [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64],
    ),
    "hg_dropout_entries": (
        None,
        [c_int, c_int, c_uint64, c_uint32, c_double, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64],
    ),
    "hg_elu": (None, [c_int, c_int, c_int, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64]),
    "hg_elu_gradient": (None, [c_int] * 3 + [c_void_p, c_int64] * 5 + [c_void_p] * 3 + [c_int64] * 3 + [c_int]),
    "hg_relu_gradient": (None, [c_int] * 3 + [c_void_p, c_int64] * 3 + [c_int64] * 2 + [c_double]),
    "hg_bias_gradient": (None, [c_int] * 3 + [c_void_p, c_void_p, c_int64, c_void_p] + [c_int64] * 2),
    "hg_multiplies": (c_int, []),
    "hg_should_multiply": (c_int, []),
    "hg_multiply": (
        c_int,
        [c_int] * 3
        + [c_void_p, c_int64, c_void_p, c_int, c_int64, c_void_p, c_int64, c_int64, c_void_p]
        + [c_int64] * 3
        + [c_int],
    ),
    "hg_project": (c_int, [c_int, c_int, POINTER(ProjectionArguments)]),
    "hg_project_backward": (c_int, [c_int, c_int, POINTER(ProjectionArguments)]),
    "hg_cross_entropy": (c_int64, [c_int] * 3 + [c_void_p] + [c_void_p, c_int64] * 2 + [c_void_p] * 3 + [c_int64] * 3),
    "hg_normalise": (None, [c_int, c_int, c_int] + [c_void_p, c_int64] * 2 + [c_void_p] + [c_int64] * 3),
    "hg_check_block": (
        c_int,
        [c_int, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64, POINTER(c_int64)],
    ),
}


def pointer(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor begins; NULL for None."""
    return None if tensor is None else tensor.data_ptr()


def rows_of(tensor: torch.Tensor | None) -> tuple[int | None, int]:
    """Where a matrix begins, and how far apart its rows are."""
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


def filled(kind, tensors: dict, **values):
    """A structure of this kind: the pointers to these tensors, the distances of rows that it has fields for, and
    these values. What is not given is 0 or NULL."""
    known = {name for name, _ in kind._fields_}
    for name, tensor in tensors.items():
        values[name] = pointer(tensor)
        if tensor is not None and f"{name}_stride" in known:
            values[f"{name}_stride"] = tensor.stride(0)
    if unknown := values.keys() - known:
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return kind(**values)
