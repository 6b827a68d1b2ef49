/* All templates of one vector path and their table, HG_TABLE; included once by each path_*.c, with HG_VECTOR_BYTES
 * defined and the target's instructions allowed.
 *
 * A template that is written for an element type finds HG_TYPE (the suffix of its names: f32, f64), HG_E (the element),
 * HG_I (an integer of its size) and HG_FULL (lanes of a register).
 */
#include "table.h"

/* Numbers of a register; their digits are joined with names. */
#if HG_VECTOR_BYTES == 64
#define HG_F32_LANES 16
#define HG_F64_LANES 8
#elif HG_VECTOR_BYTES == 32
#define HG_F32_LANES 8
#define HG_F64_LANES 4
#else
#define HG_F32_LANES 4
#define HG_F64_LANES 2
#endif
#define HG_T(name) HG_JOIN(name##_, HG_TYPE)

/* A vector whose lane l is lane f(l) of a and b, one behind the other. */
#define HG_LANES_2(f) f(0), f(1)
#define HG_LANES_4(f) HG_LANES_2(f), f(2), f(3)
#define HG_LANES_8(f) HG_LANES_4(f), f(4), f(5), f(6), f(7)
#define HG_LANES_16(f) HG_LANES_8(f), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#if defined(__clang__) || __GNUC__ >= 12
#define HG_TAKE(ints, lanes, a, b, f) __builtin_shufflevector(a, b, HG_JOIN(HG_LANES_, lanes)(f))
#else
#define HG_TAKE(ints, lanes, a, b, f) __builtin_shuffle(a, b, (ints){HG_JOIN(HG_LANES_, lanes)(f)})
#endif

#include "gather_kernels.h"
#include "philox.h"
#include "rowwise.h"
#include "exp.h"
#include "between.h"
#include "loss.h"
#include "norm.h"
#include "attention_dropout.h"

#define HG_TYPE f32
#define HG_E float
#define HG_I int32_t
#define HG_FULL HG_F32_LANES
#include "extreme.h"
#include "messages.h"
#include "attention_weights.h"
#include "attention_edges.h"
#include "narrow.h"
#define HG_LANES 1
#include "units.h"
#define HG_LANES 2
#include "units.h"
#define HG_LANES 4
#include "units.h"
#if HG_F32_LANES >= 8
#define HG_LANES 8
#include "units.h"
#endif
#if HG_F32_LANES >= 16
#define HG_LANES 16
#include "units.h"
#endif
#undef HG_TYPE
#undef HG_E
#undef HG_I
#undef HG_FULL

#define HG_TYPE f64
#define HG_E double
#define HG_I int64_t
#define HG_FULL HG_F64_LANES
#include "extreme.h"
#include "messages.h"
#include "attention_weights.h"
#include "attention_edges.h"
#include "narrow.h"
#define HG_LANES 1
#include "units.h"
#define HG_LANES 2
#include "units.h"
#if HG_F64_LANES >= 4
#define HG_LANES 4
#include "units.h"
#endif
#if HG_F64_LANES >= 8
#define HG_LANES 8
#include "units.h"
#endif
#undef HG_TYPE
#undef HG_E
#undef HG_I
#undef HG_FULL

#include "by_head.h"

#if HG_VECTOR_BYTES >= 32
#include "products_rows.h"
#endif

#define HG_NARROW(type) {range_of_##type, levels_of_row_##type, widen_row_##type, codes_of_row_##type, decode_row_##type}
#define HG_BATCH_NORM(type) {column_sums_##type, gradient_sums_##type, normalise_columns_##type, columns_gradient_##type}
#define HG_ATTENTION(type)                                                                                             \
    {forward_rows_##type, forward_chunk_##type, forward_merge_##type, backward_rows_##type, backward_chunk_##type,      \
     backward_merge_##type, score_rows_##type, score_chunk_##type, score_merge_##type, score_return_##type,            \
     score_add_##type}
#define HG_MESSAGES(type)                                                                                              \
    {message_rows_##type, message_chunk_##type, message_merge_##type, message_task_##type, message_return_##type}
#define HG_BETWEEN_LAYERS(type) {elu_##type, elu_gradient_##type, normalise_##type, bias_gradient_##type}

const hg_kernels HG_TABLE = {
    .gather = {
        [HG_F32] = {gather_rows_f32, gather_chunk_f32, gather_finish_float},
        [HG_F64] = {gather_rows_f64, gather_chunk_f64, gather_finish_double},
        [HG_BF16] = {gather_rows_bf16, gather_chunk_bf16, gather_finish_float},
        [HG_F16] = {gather_rows_f16, gather_chunk_f16, gather_finish_float},
        [HG_I8] = {gather_rows_i8, gather_chunk_i8, gather_finish_float},
    },
    .largest = {[HG_F32] = largest_rows_f32, [HG_F64] = largest_rows_f64},
    .matching = {[HG_F32] = matching_rows_f32, [HG_F64] = matching_rows_f64},
    .messages = {[HG_F32] = HG_MESSAGES(f32), [HG_F64] = HG_MESSAGES(f64)},
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
    .attention = {[HG_F32] = HG_ATTENTION(f32), [HG_F64] = HG_ATTENTION(f64)},
    .between = {[HG_F32] = HG_BETWEEN_LAYERS(f32), [HG_F64] = HG_BETWEEN_LAYERS(f64)},
    .cross_entropy = {[HG_F32] = cross_entropy_f32, [HG_F64] = cross_entropy_f64},
    .norm = {[HG_F32] = HG_BATCH_NORM(f32), [HG_F64] = HG_BATCH_NORM(f64), [HG_BF16] = HG_BATCH_NORM(bf16)},
    .narrow = {[HG_F32] = HG_NARROW(f32), [HG_F64] = HG_NARROW(f64)},
#if HG_VECTOR_BYTES >= 32
    .products = {multiply_panel, multiply_transposed, widen},
#endif
};
