/* Products of the rows of many nodes with a small matrix of weights: who does which rows, and for whom this is worth it.
 *
 * A block of rows, the weights, and the block's results are to fit the second-level cache (of 512 KiB; with 256 columns they
 * take 350): the panels then pass through the first-level cache, each once for all rows of the block.
 */
#include "products.h"

#define HG_ROWS 48              /* of a block: a multiple of HG_HEIGHT */
#define HG_FEW (1 << 18)        /* multiplications below which waking other threads costs more than they save */

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

/* y (rows, width) = x (rows, depth) w (depth, width), added to what y holds if `add`, plus bias (width) unless NULL. Element
 * (k, c) of w stands at k * w_down + c * w_across. Each element is one sum over k in order, whatever the number of threads.
 * Returns 0, or -1: no memory. */
HG_EXPORT int hg_multiply(int num_threads, float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                          int64_t w_down, int64_t w_across, const float *bias, int64_t rows, int64_t depth, int64_t width,
                          int add)
{
#if defined(__x86_64__)
    const int64_t panels = (width + HG_PANEL - 1) / HG_PANEL, size = depth * HG_PANEL;
    if (rows == 0 || width == 0)
        return 0;
    static _Thread_local hg_memory kept;
    float *packed = hg_kept(&kept, panels * (size + HG_PANEL) * (int64_t)sizeof *packed);
    if (!packed)
        return -1;
    float *biases = packed + panels * size;
    if (rows * depth * width < HG_FEW)
        num_threads = 1;
    #pragma omp parallel num_threads(num_threads)
    {
        #pragma omp for schedule(static)
        for (int64_t p = 0; p < panels; p++) {
            const int64_t first = p * HG_PANEL, columns = width - first < HG_PANEL ? width - first : HG_PANEL;
            for (int64_t c = 0; c < HG_PANEL; c++)
                biases[first + c] = bias && c < columns ? bias[first + c] : 0;
            for (int64_t k = 0; k < depth; k++)
                for (int64_t c = 0; c < HG_PANEL; c++)
                    packed[p * size + k * HG_PANEL + c] = c < columns ? w[k * w_down + (first + c) * w_across] : 0;
        }
        #pragma omp for schedule(static)
        for (int64_t first = 0; first < rows; first += HG_ROWS) {
            const int64_t num = rows - first < HG_ROWS ? rows - first : HG_ROWS;
            for (int64_t p = 0; p < panels; p++) {
                const int64_t columns = width - p * HG_PANEL < HG_PANEL ? width - p * HG_PANEL : HG_PANEL;
                hg_multiply_avx2(y + first * y_stride + p * HG_PANEL, y_stride, x + first * x_stride, x_stride,
                                 packed + p * size, bias ? biases + p * HG_PANEL : NULL, num, depth, columns, add);
            }
        }
    }
    return 0;
#else
    return -1;                          /* see hg_multiplies */
#endif
}
