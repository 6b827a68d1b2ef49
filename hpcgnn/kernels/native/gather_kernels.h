/* The gather kernels of one path: the panel template for each element type and vector length, and what joins them.
 *
 * A row at least a full vector wide uses full vectors; a narrower one uses the largest power of two that fits, twice
 * if need be. So width 7 is two overlapping vectors of 4, width 1 is scalar.
 */
#ifndef HG_PREFETCH_EDGES
#define HG_PREFETCH_EDGES 10
#endif

#define HG_F32_LANES (HG_VECTOR_BYTES / 4)
#define HG_F64_LANES (HG_VECTOR_BYTES / 8)

#define HG_TAG f32_1
#define HG_X float
#define HG_A float
#define HG_LANES 1
#define HG_MAX_VECTORS 1
#define HG_IS_BF16 0
#include "gather_panel.h"
#define HG_TAG f32_2
#define HG_X float
#define HG_A float
#define HG_LANES 2
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 0
#include "gather_panel.h"
#if HG_F32_LANES > 4
#define HG_TAG f32_4
#define HG_X float
#define HG_A float
#define HG_LANES 4
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 0
#include "gather_panel.h"
#endif
#if HG_F32_LANES > 8
#define HG_TAG f32_8
#define HG_X float
#define HG_A float
#define HG_LANES 8
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 0
#include "gather_panel.h"
#endif
#define HG_TAG f32_full
#define HG_X float
#define HG_A float
#define HG_LANES HG_F32_LANES
#define HG_MAX_VECTORS 8
#define HG_IS_BF16 0
#include "gather_panel.h"

#define HG_TAG bf16_1
#define HG_X uint16_t
#define HG_A float
#define HG_LANES 1
#define HG_MAX_VECTORS 1
#define HG_IS_BF16 1
#include "gather_panel.h"
#define HG_TAG bf16_2
#define HG_X uint16_t
#define HG_A float
#define HG_LANES 2
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 1
#include "gather_panel.h"
#if HG_F32_LANES > 4
#define HG_TAG bf16_4
#define HG_X uint16_t
#define HG_A float
#define HG_LANES 4
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 1
#include "gather_panel.h"
#endif
#if HG_F32_LANES > 8
#define HG_TAG bf16_8
#define HG_X uint16_t
#define HG_A float
#define HG_LANES 8
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 1
#include "gather_panel.h"
#endif
#define HG_TAG bf16_full
#define HG_X uint16_t
#define HG_A float
#define HG_LANES HG_F32_LANES
#define HG_MAX_VECTORS 8
#define HG_IS_BF16 1
#include "gather_panel.h"

#define HG_TAG f64_1
#define HG_X double
#define HG_A double
#define HG_LANES 1
#define HG_MAX_VECTORS 1
#define HG_IS_BF16 0
#include "gather_panel.h"
#if HG_F64_LANES > 2
#define HG_TAG f64_2
#define HG_X double
#define HG_A double
#define HG_LANES 2
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 0
#include "gather_panel.h"
#endif
#if HG_F64_LANES > 4
#define HG_TAG f64_4
#define HG_X double
#define HG_A double
#define HG_LANES 4
#define HG_MAX_VECTORS 2
#define HG_IS_BF16 0
#include "gather_panel.h"
#endif
#define HG_TAG f64_full
#define HG_X double
#define HG_A double
#define HG_LANES HG_F64_LANES
#define HG_MAX_VECTORS 8
#define HG_IS_BF16 0
#include "gather_panel.h"

/* Picks the vector length for a width: HG_PICK_f32(rows, (a, first, last)) calls rows_f32_<length>(a, first, last). */
#if HG_F32_LANES > 8
#define HG_PICK_8(name, type, call) if (a->width >= 8) name##_##type##_8 call; else
#else
#define HG_PICK_8(name, type, call)
#endif
#if HG_F32_LANES > 4
#define HG_PICK_4(name, type, call) if (a->width >= 4) name##_##type##_4 call; else
#else
#define HG_PICK_4(name, type, call)
#endif
#define HG_PICK_float(name, type, call)                                                                                \
    if (a->width >= HG_F32_LANES) name##_##type##_full call; else                                                      \
    HG_PICK_8(name, type, call) HG_PICK_4(name, type, call)                                                            \
    if (a->width >= 2) name##_##type##_2 call; else name##_##type##_1 call

#if HG_F64_LANES > 4
#define HG_PICK_D4(name, call) if (a->width >= 4) name##_f64_4 call; else
#else
#define HG_PICK_D4(name, call)
#endif
#if HG_F64_LANES > 2
#define HG_PICK_D2(name, call) if (a->width >= 2) name##_f64_2 call; else
#else
#define HG_PICK_D2(name, call)
#endif
#define HG_PICK_double(name, call)                                                                                     \
    if (a->width >= HG_F64_LANES) name##_f64_full call; else                                                           \
    HG_PICK_D4(name, call) HG_PICK_D2(name, call) name##_f64_1 call

static void rows_f32(const hg_gather_args *a, int64_t first, int64_t last)
{
    HG_PICK_float(rows, f32, (a, first, last));
}

static void rows_bf16(const hg_gather_args *a, int64_t first, int64_t last)
{
    HG_PICK_float(rows, bf16, (a, first, last));
}

static void rows_f64(const hg_gather_args *a, int64_t first, int64_t last)
{
    HG_PICK_double(rows, (a, first, last));
}

static void chunk_f32(const hg_gather_args *a, int64_t first, int64_t last, void *partial)
{
    HG_PICK_float(chunk, f32, (a, first, last, partial));
}

static void chunk_bf16(const hg_gather_args *a, int64_t first, int64_t last, void *partial)
{
    HG_PICK_float(chunk, bf16, (a, first, last, partial));
}

static void chunk_f64(const hg_gather_args *a, int64_t first, int64_t last, void *partial)
{
    HG_PICK_double(chunk, (a, first, last, partial));
}

/* Adds the chunks' sums into the first one's place, in order. */
#define HG_ADD_CHUNKS(type)                                                                                            \
    type *sum = (type *)partial;                                                                                       \
    const int64_t width = a->width, r = a->rows ? a->rows[i] : i;                                                      \
    for (int64_t k = 1; k < num_chunks; k++)                                                                           \
        for (int64_t c = 0; c < width; c++)                                                                            \
            sum[c] += sum[k * width + c];                                                                              \
    if (a->row_scale)                                                                                                  \
        for (int64_t c = 0; c < width; c++)                                                                            \
            sum[c] *= ((const type *)a->row_scale)[r];

static void finish_float(const hg_gather_args *a, int64_t i, void *partial, int64_t num_chunks)
{
    HG_ADD_CHUNKS(float)
    if (a->y_type == HG_BF16) {
        uint16_t *y = (uint16_t *)a->y + r * a->y_stride;
        for (int64_t c = 0; c < width; c++)
            y[c] = hg_bf16_of_float(a->accumulate ? sum[c] + hg_float_of_bf16(y[c]) : sum[c]);
    } else {
        float *y = (float *)a->y + r * a->y_stride;
        for (int64_t c = 0; c < width; c++)
            y[c] = a->accumulate ? y[c] + sum[c] : sum[c];
    }
}

static void finish_double(const hg_gather_args *a, int64_t i, void *partial, int64_t num_chunks)
{
    HG_ADD_CHUNKS(double)
    double *y = (double *)a->y + r * a->y_stride;
    for (int64_t c = 0; c < width; c++)
        y[c] = a->accumulate ? y[c] + sum[c] : sum[c];
}
