/* The product of factors rounded to bfloat16, for processors with AVX512-BF16. Only products.c and projection.c call it.
 *
 * An instruction multiplies sixteen pairs with one pair of x, which it reads from memory for all of them, and adds both
 * products to sixteen sums. Twelve rows keep more of them on their way than one takes to finish. x and a panel are in
 * the first-level cache: 48 rows of 256 numbers take 24 KiB.
 */
#include "products.h"

#if defined(HG_PAIRS)
#include <immintrin.h>

#include "vector.h"

#define HG_PAIR_HEIGHT 12
/* From here to the end functions may use AVX512-BF16. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16")
#endif

/* `rows` of them, a constant. */
HG_INLINE void multiply_rows(float *y, int64_t y_stride, const uint32_t *x, int64_t down, int64_t across,
                             const uint32_t *panel, const float *bias, int64_t words, __mmask16 counted, int add,
                             const int rows)
{
    __m512 sums[HG_PAIR_HEIGHT];
    HG_UNROLL
    for (int i = 0; i < rows; i++)
        sums[i] = bias ? _mm512_loadu_ps(bias) : _mm512_setzero_ps();
    for (int64_t k = 0; k < words; k++) {
        const __m512bh right = (__m512bh)_mm512_loadu_si512(panel + k * HG_PANEL);
        HG_UNROLL
        for (int i = 0; i < rows; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], right, (__m512bh)_mm512_set1_epi32((int)x[i * down + k * across]));
    }
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        float *to = y + i * y_stride;
        if (add)
            sums[i] = _mm512_add_ps(sums[i], _mm512_maskz_loadu_ps(counted, to));
        _mm512_mask_storeu_ps(to, counted, sums[i]);
    }
}

void hg_multiply_pairs(float *y, int64_t y_stride, const uint32_t *x, int64_t down, int64_t across, const uint32_t *panel,
                       const float *bias, int64_t rows, int64_t words, int64_t num, int add)
{
    const __mmask16 counted = (__mmask16)((1u << num) - 1);
    int64_t i = 0;
#define HG_SOME_PAIRS(rows)                                                                                                  \
    multiply_rows(y + i * y_stride, y_stride, x + i * down, down, across, panel, bias, words, counted, add, rows)
    for (; i + HG_PAIR_HEIGHT <= rows; i += HG_PAIR_HEIGHT)
        HG_SOME_PAIRS(HG_PAIR_HEIGHT);
    if (i + 8 <= rows) {
        HG_SOME_PAIRS(8);
        i += 8;
    }
    if (i + 4 <= rows) {
        HG_SOME_PAIRS(4);
        i += 4;
    }
    for (; i < rows; i++)
        HG_SOME_PAIRS(1);
}

/* The first `num` of sixteen numbers, the others 0. */
HG_INLINE __m512 some(const float *x, int64_t num)
{
    return num >= 16 ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps((__mmask16)((1u << num) - 1), x);
}

HG_INLINE __m256i rounded_of(__m512 x)
{
    return (__m256i)_mm512_cvtneps_pbh(x);
}

void hg_pair_columns(uint32_t *to, int64_t stride, const float *x, int64_t x_stride, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < depth; c += 16) {
            const int64_t num = depth - c, words = (num + 1) / 2;
            const __m256i pairs = rounded_of(some(x + i * x_stride + c, num));
            if (words >= 8)
                _mm256_storeu_si256((__m256i *)(to + i * stride + c / 2), pairs);
            else
                _mm256_mask_storeu_epi32(to + i * stride + c / 2, (__mmask8)((1u << words) - 1), pairs);
        }
}

void hg_pair_rows(uint32_t *to, int64_t stride, const float *x, int64_t x_stride, int64_t rows, int64_t columns)
{
    for (int64_t k = 0; k < rows; k += 2)
        for (int64_t c = 0; c < columns; c += 16) {
            const int64_t num = columns - c;
            const float *from = x + k * x_stride + c;
            const __m512i low = _mm512_cvtepu16_epi32(rounded_of(some(from, num)));
            const __m512 next = k + 1 < rows ? some(from + x_stride, num) : _mm512_setzero_ps();
            const __m512i high = _mm512_cvtepu16_epi32(rounded_of(next));
            const __mmask16 counted = num >= 16 ? 0xffff : (__mmask16)((1u << num) - 1);
            _mm512_mask_storeu_epi32(to + k / 2 * stride + c, counted, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
