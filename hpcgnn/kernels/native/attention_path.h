/* All attention templates of one path and their table, HG_TABLE: for each element type the weights of edges
 * (attention_weights.h), then the rows for each unit of columns (attention_rows.h), and the choice of a unit.
 *
 * A unit is the largest power of two of columns that fits both a register and a head. The last unit of a head ends with
 * the head and may overlap its neighbour: width 40 is five units of 8, width 7 two of 4, width 1 is scalar.
 */
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

#include "attention_exp.h"
#include "between.h"
#include "loss.h"
#include "attention_dropout.h"

#define HG_T(name) HG_JOIN(name##_, HG_TYPE)

#define HG_TYPE f32
#define HG_E float
#define HG_I int32_t
#define HG_FULL HG_F32_LANES
#include "attention_weights.h"
#define HG_LANES 1
#include "attention_rows.h"
#define HG_LANES 2
#include "attention_rows.h"
#define HG_LANES 4
#include "attention_rows.h"
#if HG_F32_LANES >= 8
#define HG_LANES 8
#include "attention_rows.h"
#endif
#if HG_F32_LANES >= 16
#define HG_LANES 16
#include "attention_rows.h"
#endif
#undef HG_TYPE
#undef HG_E
#undef HG_I
#undef HG_FULL

#define HG_TYPE f64
#define HG_E double
#define HG_I int64_t
#define HG_FULL HG_F64_LANES
#include "attention_weights.h"
#define HG_LANES 1
#include "attention_rows.h"
#define HG_LANES 2
#include "attention_rows.h"
#if HG_F64_LANES >= 4
#define HG_LANES 4
#include "attention_rows.h"
#endif
#if HG_F64_LANES >= 8
#define HG_LANES 8
#include "attention_rows.h"
#endif
#undef HG_TYPE
#undef HG_E
#undef HG_I
#undef HG_FULL

#if HG_VECTOR_BYTES >= 64
#define HG_CHOOSE_f32(name, ...)                                                                                       \
    if (head_width >= 16) name##_f32_16(__VA_ARGS__);                                                                  \
    else if (head_width >= 8) name##_f32_8(__VA_ARGS__);                                                               \
    else HG_CHOOSE_NARROW(name##_f32, __VA_ARGS__)
#define HG_CHOOSE_f64(name, ...)                                                                                       \
    if (head_width >= 8) name##_f64_8(__VA_ARGS__);                                                                    \
    else HG_CHOOSE_NARROW(name##_f64, __VA_ARGS__)
#elif HG_VECTOR_BYTES >= 32
#define HG_CHOOSE_f32(name, ...)                                                                                       \
    if (head_width >= 8) name##_f32_8(__VA_ARGS__);                                                                    \
    else HG_CHOOSE_NARROW(name##_f32, __VA_ARGS__)
#define HG_CHOOSE_f64(name, ...) HG_CHOOSE_NARROW(name##_f64, __VA_ARGS__)
#else
#define HG_CHOOSE_f32(name, ...) HG_CHOOSE_NARROW(name##_f32, __VA_ARGS__)
#define HG_CHOOSE_f64(name, ...)                                                                                       \
    if (head_width >= 2) name##_f64_2(__VA_ARGS__);                                                                    \
    else name##_f64_1(__VA_ARGS__);
#endif
#define HG_CHOOSE_NARROW(name, ...)                                                                                    \
    if (head_width >= 4) name##_4(__VA_ARGS__);                                                                        \
    else if (head_width >= 2) name##_2(__VA_ARGS__);                                                                   \
    else name##_1(__VA_ARGS__);

#define HG_ENTRIES(type)                                                                                               \
    static void forward_rows_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last)  \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_CHOOSE_##type(forward_rows, a, s, first, last)                                                              \
    }                                                                                                                  \
    static void forward_chunk_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,    \
                                     int64_t last, void *partial)                                                      \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_CHOOSE_##type(forward_chunk, a, s, i, first, last, partial)                                                 \
    }                                                                                                                  \
    static void backward_rows_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last, \
                                     void *gradient, int64_t stride)                                                   \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_CHOOSE_##type(backward_rows, a, s, first, last, gradient, stride)                                           \
    }                                                                                                                  \
    static void backward_chunk_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,   \
                                      int64_t last, void *partial, void *gradient, int64_t stride)                     \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_CHOOSE_##type(backward_chunk, a, s, i, first, last, partial, gradient, stride)                              \
    }
HG_ENTRIES(f32)
HG_ENTRIES(f64)

#define HG_GRADIENT(type)                                                                                              \
    static void elu_gradient_##type(void *out, const void *gy, const void *y, const void *x, const void *bias,         \
                                    void *dots, void *sums, int64_t heads, int64_t head_width, int scaled)             \
    {                                                                                                                  \
        HG_CHOOSE_##type(elu_gradient, out, gy, y, x, bias, dots, sums, heads, head_width, scaled)                     \
    }
HG_GRADIENT(f32)
HG_GRADIENT(f64)

#define HG_ENTRY(type)                                                                                                 \
    {forward_rows_##type, forward_chunk_##type, forward_merge_##type, backward_rows_##type, backward_chunk_##type,     \
     backward_merge_##type, elu_##type, elu_gradient_##type, normalise_##type, bias_gradient_##type,                     \
     cross_entropy_##type}
const hg_attention_kernels HG_TABLE[2] = {[HG_F32] = HG_ENTRY(f32), [HG_F64] = HG_ENTRY(f64)};
