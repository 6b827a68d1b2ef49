/* Products of the rows of many nodes with a small matrix of weights: who does which rows, and for whom this is worth it.
 *
 * A block of rows, the weights, and the block's results are to fit the second-level cache (of 512 KiB; with 256 columns they
 * take 350): the panels then pass through the first-level cache, each once for all rows of the block.
 */
#include "products.h"

#include <string.h>

/* 1 if this processor should have its products from here: it has AVX2 and FMA, and is of the maker on whose processors the
 * library that torch brings along was measured to be slower. */
HG_EXPORT int hg_multiplies(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_is("amd");
#else
    return 0;
#endif
}

void hg_pack_panel(float *panel, const float *w, int64_t w_down, int64_t w_across, int64_t depth, int64_t num)
{
    for (int64_t k = 0; k < depth; k++)
        if (w_across == 1 && num == HG_PANEL)
            memcpy(panel + k * HG_PANEL, w + k * w_down, HG_PANEL * sizeof *w);
        else
            for (int64_t c = 0; c < HG_PANEL; c++)
                panel[k * HG_PANEL + c] = c < num ? w[k * w_down + c * w_across] : 0;
}

void hg_pack_panels(float *packed, const float *w, int64_t w_down, int64_t w_across, int64_t depth, int64_t width)
{
    #pragma omp for schedule(static)
    for (int64_t p = 0; p < hg_panels_of(width); p++)
        hg_pack_panel(packed + p * depth * HG_PANEL, w + p * HG_PANEL * w_across, w_down, w_across, depth,
                      hg_least(width - p * HG_PANEL, HG_PANEL));
}

void hg_multiply_block(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *packed, const float *bias,
                       int64_t rows, int64_t depth, int64_t width, int add)
{
#if defined(__x86_64__)
    for (int64_t first = 0; first < width; first += HG_PANEL)
        hg_multiply_avx2(y + first, y_stride, x, x_stride, packed + first * depth, bias ? bias + first : NULL, rows, depth,
                         hg_least(width - first, HG_PANEL), add);
#endif
}

/* y (rows, width) = x (rows, depth) w (depth, width), added to what y holds if `add`, plus bias (width) unless NULL. Element
 * (k, c) of w stands at k * w_down + c * w_across. Each element is one sum over k in order, whatever the number of threads.
 * Returns 0, or -1: no memory. */
HG_EXPORT int hg_multiply(int num_threads, float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                          int64_t w_down, int64_t w_across, const float *bias, int64_t rows, int64_t depth, int64_t width,
                          int add)
{
#if defined(__x86_64__)
    const int64_t columns = hg_panels_of(width) * HG_PANEL;
    if (rows == 0 || width == 0)
        return 0;
    static _Thread_local hg_memory kept;
    float *packed = hg_kept(&kept, columns * (depth + 1) * (int64_t)sizeof *packed);
    if (!packed)
        return -1;
    float *biases = packed + columns * depth;
    for (int64_t c = 0; bias && c < columns; c++)
        biases[c] = c < width ? bias[c] : 0;
    if (rows * depth * width < HG_FEW)
        num_threads = 1;
    #pragma omp parallel num_threads(num_threads)
    {
        hg_pack_panels(packed, w, w_down, w_across, depth, width);
        #pragma omp for schedule(static)
        for (int64_t first = 0; first < rows; first += HG_ROWS)
            hg_multiply_block(y + first * y_stride, y_stride, x + first * x_stride, x_stride, packed, bias ? biases : NULL,
                              hg_least(rows - first, HG_ROWS), depth, width, add);
    }
    return 0;
#else
    return -1;                          /* see hg_multiplies */
#endif
}
