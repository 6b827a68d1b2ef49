/* All templates of one path and their table, HG_TABLE; included once per path_*.c, with HG_VECTOR_BYTES defined and the
 * target's instructions allowed. */
#include "gather_kernels.h"
#define HG_TYPE f32
#define HG_E float
#include "extreme.h"
#define HG_TYPE f64
#define HG_E double
#include "extreme.h"
#include "philox.h"
#include "probe.h"
#include "rowwise.h"

const hg_kernels HG_TABLE = {
    .gather = {
        [HG_F32] = {rows_f32, chunk_f32, finish_float},
        [HG_F64] = {rows_f64, chunk_f64, finish_double},
        [HG_BF16] = {rows_bf16, chunk_bf16, finish_float},
    },
    .largest = {[HG_F32] = largest_rows_f32, [HG_F64] = largest_rows_f64},
    .matching = {[HG_F32] = matching_rows_f32, [HG_F64] = matching_rows_f64},
    .copy_row = {
        [HG_F32] = {[HG_F32] = copy_f32, [HG_BF16] = copy_f32_bf16},
        [HG_F64] = {[HG_F64] = copy_f64},
        [HG_BF16] = {[HG_BF16] = copy_bf16},
    },
    .philox_blocks = philox_blocks,
    .philox_row = philox_row,
    .drop = {[HG_F32] = drop_f32, [HG_F64] = drop_f64, [HG_BF16] = drop_bf16},
    .relu_gradient = {[HG_F32] = relu_f32, [HG_F64] = relu_f64, [HG_BF16] = relu_bf16},
    .probe = probe,
};
