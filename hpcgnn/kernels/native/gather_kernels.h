/* The gather kernels of one path: the templates for each element type and unit, and the choice between them by width.
 *
 * Rows that fit into 8 registers (bfloat16: 16) are summed there (gather_narrow.h), wider ones in the L1 cache
 * (gather_wide.h). A row narrower than a register uses the largest power of two of columns that fits, twice if need be:
 * width 7 is two overlapping units of 4, width 1 is scalar.
 */
/* Kinds of unit. */
#define HG_PLAIN 0
#define HG_PAIR 1               /* bfloat16, two columns per lane */
#define HG_SINGLE 2             /* bfloat16, one column: width 1 only */
#define HG_HALF 3               /* float16, which is widened as it is loaded */
#define HG_BYTE 4               /* int8, likewise */
#define HG_DOUBLE 5

/* Edges ahead of the sum at which rows are prefetched: a narrow row is summed many times faster than one comes from memory.
 * Wide rows need less: those of 1024 bytes are prefetched one group of 4 ahead, those of 512 two, others 16 edges (12 and
 * 24 are as good). */
#define HG_NARROW_AHEAD 24
#define HG_WIDE_AHEAD 16

/* A hub from the sums of its chunks, which are added into the first one's place in order. */
#define HG_FINISH(type)                                                                                                \
    static void gather_finish_##type(const hg_gather_args *a, int64_t i, void *partial, int64_t num_chunks)            \
    {                                                                                                                  \
        type *sums = (type *)partial, *y;                                                                              \
        const int64_t width = a->width, r = a->rows ? a->rows[i] : i;                                                  \
        const type factor = a->row_scale ? ((const type *)a->row_scale)[r] : 1;                                        \
        for (int64_t k = 1; k < num_chunks; k++)                                                                       \
            for (int64_t c = 0; c < width; c++)                                                                        \
                sums[c] += sums[k * width + c];                                                                        \
        if (a->y_type == HG_BF16) {                                                                                    \
            uint16_t *half = (uint16_t *)a->y + r * a->y_stride;                                                       \
            for (int64_t c = 0; c < width; c++) {                                                                      \
                float sum = (float)(factor * sums[c]);                                                                 \
                half[c] = hg_bf16_of_float(a->accumulate ? sum + hg_float_of_bf16(half[c]) : sum);                     \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        y = (type *)a->y + r * a->y_stride;                                                                            \
        for (int64_t c = 0; c < width; c++)                                                                            \
            y[c] = a->accumulate ? y[c] + factor * sums[c] : factor * sums[c];                                         \
    }
HG_FINISH(float)
HG_FINISH(double)

#define HG_OF f32
#define HG_OF_KIND HG_PLAIN
#include "gather_floats.h"
#define HG_OF f16
#define HG_OF_KIND HG_HALF
#include "gather_floats.h"
#define HG_OF i8
#define HG_OF_KIND HG_BYTE
#include "gather_floats.h"

#define HG_TAG f64_1
#define HG_KIND HG_DOUBLE
#define HG_LANES 1
#include "gather_unit.h"

#if HG_F64_LANES > 2
#define HG_TAG f64_2
#define HG_KIND HG_DOUBLE
#define HG_LANES 2
#include "gather_unit.h"
#endif

#if HG_F64_LANES > 4
#define HG_TAG f64_4
#define HG_KIND HG_DOUBLE
#define HG_LANES 4
#include "gather_unit.h"
#endif

#define HG_TAG f64_full
#define HG_KIND HG_DOUBLE
#define HG_LANES HG_F64_LANES
#include "gather_unit.h"

#define HG_TAG bf16_1
#define HG_KIND HG_SINGLE
#define HG_LANES 1
#include "gather_unit.h"

#define HG_TAG bf16_2
#define HG_KIND HG_PAIR
#define HG_LANES 1
#include "gather_unit.h"

#define HG_TAG bf16_4
#define HG_KIND HG_PAIR
#define HG_LANES 2
#include "gather_unit.h"

#if HG_F32_LANES > 4
#define HG_TAG bf16_8
#define HG_KIND HG_PAIR
#define HG_LANES 4
#include "gather_unit.h"
#endif

#if HG_F32_LANES > 8
#define HG_TAG bf16_16
#define HG_KIND HG_PAIR
#define HG_LANES 8
#include "gather_unit.h"
#endif

#define HG_TAG bf16_full
#define HG_KIND HG_PAIR
#define HG_LANES HG_F32_LANES
#include "gather_unit.h"

/* Calls name_TYPE_UNIT for the largest unit that fits the width, or wide_name_TYPE_full beyond 8 registers. A unit
 * that a path does not have is as wide as a full one, which is asked for first. */
#if HG_F32_LANES > 4
#define HG_IF_OVER_4(statement) statement else
#else
#define HG_IF_OVER_4(statement)
#endif
#if HG_F32_LANES > 8
#define HG_IF_OVER_8(statement) statement else
#else
#define HG_IF_OVER_8(statement)
#endif

#define HG_BY_FLOATS(type, name, ...)                                                                                  \
    const int64_t width = a->width, full = HG_F32_LANES;                                                               \
    if (width > 8 * full) gather_wide_##name##_##type##_full(__VA_ARGS__);                                             \
    else if (width >= full) gather_##name##_##type##_full(__VA_ARGS__);                                                \
    else HG_IF_OVER_8(if (width >= 8) gather_##name##_##type##_8(__VA_ARGS__);)                                        \
    HG_IF_OVER_4(if (width >= 4) gather_##name##_##type##_4(__VA_ARGS__);)                                             \
    if (width >= 2) gather_##name##_##type##_2(__VA_ARGS__);                                                           \
    else gather_##name##_##type##_1(__VA_ARGS__);

#define HG_BY_WIDTH_f32(name, ...) HG_BY_FLOATS(f32, name, __VA_ARGS__)
#define HG_BY_WIDTH_f16(name, ...) HG_BY_FLOATS(f16, name, __VA_ARGS__)
#define HG_BY_WIDTH_i8(name, ...) HG_BY_FLOATS(i8, name, __VA_ARGS__)

#define HG_BY_WIDTH_f64(name, ...)                                                                                     \
    const int64_t width = a->width, full = HG_F64_LANES;                                                               \
    if (width > 8 * full) gather_wide_##name##_f64_full(__VA_ARGS__);                                                  \
    else if (width >= full) gather_##name##_f64_full(__VA_ARGS__);                                                     \
    else HG_IF_OVER_8(if (width >= 4) gather_##name##_f64_4(__VA_ARGS__);)                                             \
    HG_IF_OVER_4(if (width >= 2) gather_##name##_f64_2(__VA_ARGS__);)                                                  \
    gather_##name##_f64_1(__VA_ARGS__);

#define HG_BY_WIDTH_bf16(name, ...)                                                                                    \
    const int64_t width = a->width, full = 2 * HG_F32_LANES;                                                           \
    if (width > 8 * full) gather_wide_##name##_bf16_full(__VA_ARGS__);                                                 \
    else if (width >= full) gather_##name##_bf16_full(__VA_ARGS__);                                                    \
    else HG_IF_OVER_8(if (width >= 16) gather_##name##_bf16_16(__VA_ARGS__);)                                          \
    HG_IF_OVER_4(if (width >= 8) gather_##name##_bf16_8(__VA_ARGS__);)                                                 \
    if (width >= 4) gather_##name##_bf16_4(__VA_ARGS__);                                                               \
    else if (width >= 2) gather_##name##_bf16_2(__VA_ARGS__);                                                          \
    else gather_##name##_bf16_1(__VA_ARGS__);

#define HG_GATHER(type)                                                                                                \
    static void gather_rows_##type(const hg_gather_args *a, int64_t first, int64_t last)                               \
    {                                                                                                                  \
        HG_BY_WIDTH_##type(rows, a, first, last)                                                                       \
    }                                                                                                                  \
    static void gather_chunk_##type(const hg_gather_args *a, int64_t first, int64_t last, void *partial)               \
    {                                                                                                                  \
        HG_BY_WIDTH_##type(chunk, a, first, last, partial)                                                             \
    }
HG_GATHER(f32)
HG_GATHER(f64)
HG_GATHER(bf16)
HG_GATHER(f16)
HG_GATHER(i8)
