/* The templates of a vector path that are of no one element type, and its table. */
#include "gather_kernels.h"
#include "philox.h"
#include "rowwise.h"
#include "norm.h"

#if HG_VECTOR_BYTES >= 32
#include "products_rows.h"
#include "layer_norm.h"
#endif

#define HG_BATCH_NORM(type) {column_sums_##type, gradient_sums_##type, normalise_columns_##type, columns_gradient_##type}

const hg_kernels HG_ON_PATH(hg_kernels) = {
    .gather = {
        [HG_F32] = {gather_rows_f32, gather_chunk_f32, gather_finish_float},
        [HG_F64] = {gather_rows_f64, gather_chunk_f64, gather_finish_double},
        [HG_BF16] = {gather_rows_bf16, gather_chunk_bf16, gather_finish_float},
        [HG_F16] = {gather_rows_f16, gather_chunk_f16, gather_finish_float},
        [HG_I8] = {gather_rows_i8, gather_chunk_i8, gather_finish_float},
    },
    .of = {[HG_F32] = &HG_ON_PATH(hg_f32), [HG_F64] = &HG_ON_PATH(hg_f64)},
    .copy_row = {
        [HG_F32] = {[HG_F32] = copy_f32, [HG_BF16] = copy_f32_bf16},
        [HG_F64] = {[HG_F64] = copy_f64},
        [HG_BF16] = {[HG_F32] = copy_bf16_f32, [HG_BF16] = copy_bf16},
        [HG_F16] = {[HG_F32] = copy_f16_f32, [HG_F16] = copy_f16},
        [HG_I8] = {[HG_F32] = copy_i8_f32, [HG_I8] = copy_i8},
    },
    .add_row = {[HG_F32] = add_row_f32, [HG_F64] = add_row_f64, [HG_BF16] = add_row_bf16},
    .philox_blocks = philox_blocks,
    .philox_row = philox_row,
    .drop = {[HG_F32] = drop_f32, [HG_F64] = drop_f64, [HG_BF16] = drop_bf16},
    .drop_part = {[HG_F32] = drop_part_f32, [HG_F64] = drop_part_f64, [HG_BF16] = drop_part_bf16},
    .relu_gradient = {[HG_F32] = relu_f32, [HG_F64] = relu_f64, [HG_BF16] = relu_bf16},
    .norm = {[HG_F32] = HG_BATCH_NORM(f32), [HG_F64] = HG_BATCH_NORM(f64), [HG_BF16] = HG_BATCH_NORM(bf16)},
#if HG_VECTOR_BYTES >= 32
    .products = {HG_ABREAST * HG_PANEL, multiply, multiply_transposed, widen, take_rows, layer_norm, layer_norm_gradient},
#endif
};
