/* The product for processors with AVX2 and FMA. Only products.c and projection.c call it.
 *
 * Twelve sums of eight columns, two registers of the panel and one of an element of x take fifteen of sixteen registers; for
 * every twelve multiplications there are eight loads, which take the ports for loads less time than the others need. So it
 * begins two multiplications in each cycle as long as all is in the first-level cache; hence the prefetching.
 */
#include "products.h"
#include "vector.h"

#if defined(__x86_64__)
/* Included headers come first: what follows may use instructions that the processor may not have. */
#include "target_avx2.h"

#define HG_HEIGHT 6             /* rows of results that are in registers at a time */
#define HG_LINE 16              /* numbers of a cache line */
typedef float unit __attribute__((vector_size(32)));
typedef float loose __attribute__((vector_size(32), aligned(4), may_alias));

HG_INLINE void put(float *to, unit value, int add)
{
    if (add)
        value += *(const loose *)to;
    *(loose *)to = value;
}

/* `rows` of them, a constant. ahead: 2 * depth numbers that are needed soon. */
HG_INLINE void multiply_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                             const float *bias, const float *ahead, int64_t depth, int64_t num, int add, const int rows)
{
    unit left_bias = {0}, right_bias = {0}, sums[HG_HEIGHT][2];
    const float *row[HG_HEIGHT];
    if (bias) {
        left_bias = *(const loose *)bias;
        right_bias = *(const loose *)(bias + 8);
    }
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        row[i] = x + i * x_stride;
        __builtin_prefetch(y + i * y_stride, 1);
        sums[i][0] = left_bias;
        sums[i][1] = right_bias;
    }
    for (int64_t from = 0; from < depth; from += HG_LINE) {
        const int64_t to = from + HG_LINE < depth ? from + HG_LINE : depth;
        HG_UNROLL
        for (int i = 0; i < rows; i++)
            __builtin_prefetch(row[i] + rows * x_stride + from);
        __builtin_prefetch(ahead + 2 * from);
        __builtin_prefetch(ahead + 2 * from + HG_LINE);
        for (int64_t k = from; k < to; k++) {
            const unit left = *(const loose *)(panel + k * HG_PANEL), right = *(const loose *)(panel + k * HG_PANEL + 8);
            HG_UNROLL
            for (int i = 0; i < rows; i++) {
                sums[i][0] += row[i][k] * left;
                sums[i][1] += row[i][k] * right;
            }
        }
    }
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        float *to = y + i * y_stride, result[HG_PANEL];
        if (num == HG_PANEL) {
            put(to, sums[i][0], add);
            put(to + 8, sums[i][1], add);
        } else {
            put(result, sums[i][0], 0);
            put(result + 8, sums[i][1], 0);
            for (int64_t c = 0; c < num; c++)
                to[c] = add ? to[c] + result[c] : result[c];
        }
    }
}

void hg_multiply_avx2(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel, const float *bias,
                      int64_t rows, int64_t depth, int64_t num, int add)
{
    int64_t i = 0;
#define HG_SOME(ahead, rows)                                                                                           \
    multiply_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, panel, bias, ahead, depth, num, add, rows)
    for (; i + HG_HEIGHT <= rows; i += HG_HEIGHT)
        HG_SOME(panel + (HG_PANEL + i / HG_HEIGHT * 2) * depth, HG_HEIGHT);
    switch (rows - i) {
    case 1: HG_SOME(panel, 1); break;
    case 2: HG_SOME(panel, 2); break;
    case 3: HG_SOME(panel, 3); break;
    case 4: HG_SOME(panel, 4); break;
    case 5: HG_SOME(panel, 5); break;
    }
}

/* `num` columns of x, a constant. The rows' sum is made by itself first, which loses fewer digits than adding each row. */
HG_INLINE void multiply_columns(float *sums, const float *x, int64_t x_stride, const float *panel, int64_t rows, const int num)
{
    unit total[HG_HEIGHT][2] = {{{0}}};
    for (int64_t k = 0; k < rows; k++) {
        const unit left = *(const loose *)(panel + k * HG_PANEL), right = *(const loose *)(panel + k * HG_PANEL + 8);
        HG_UNROLL
        for (int i = 0; i < num; i++) {
            total[i][0] += x[k * x_stride + i] * left;
            total[i][1] += x[k * x_stride + i] * right;
        }
    }
    HG_UNROLL
    for (int i = 0; i < num; i++) {
        put(sums + i * HG_PANEL, total[i][0], 1);
        put(sums + i * HG_PANEL + 8, total[i][1], 1);
    }
}

void hg_multiply_transposed_avx2(float *sums, const float *x, int64_t x_stride, const float *panel, int64_t rows, int64_t depth)
{
    int64_t d = 0;
#define HG_COLUMNS(num) multiply_columns(sums + d * HG_PANEL, x + d, x_stride, panel, rows, num)
    for (; d + HG_HEIGHT <= depth; d += HG_HEIGHT)
        HG_COLUMNS(HG_HEIGHT);
    switch (depth - d) {
    case 1: HG_COLUMNS(1); break;
    case 2: HG_COLUMNS(2); break;
    case 3: HG_COLUMNS(3); break;
    case 4: HG_COLUMNS(4); break;
    case 5: HG_COLUMNS(5); break;
    }
}

void hg_widen_avx2(float *to, int64_t stride, const uint16_t *x, int64_t x_stride, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i++) {
        float *restrict row = to + i * stride;
        for (int64_t c = 0; c < depth; c++)
            row[c] = hg_float_of_bf16(x[i * x_stride + c]);
    }
}

#include "target_end.h"
#endif
