/* Products of the rows of many nodes with a small matrix of weights: who does which rows.
 *
 * A block of rows, the weights, and the block's results are to fit the second-level cache (of 512 KiB; with 256 columns they
 * take 350): the panels then pass through the first-level cache, each once for all rows of the block.
 */
#include "products.h"

#include <omp.h>
#include <string.h>

#include "vector.h"

void hg_pack_panel(int rounded, void *panel, const float *w, int64_t down, int64_t across, int64_t depth, int64_t num)
{
    float *numbers = panel;
    uint16_t *halves = panel;
#if defined(HG_PAIRS)
    if (rounded && across == 1 && num == HG_PANEL) {
        hg_pair_rows(panel, HG_PANEL, w, down, depth, num);
        return;
    }
#endif
    for (int64_t k = 0; k < depth; k++)
        if (rounded)
            for (int64_t c = 0; c < HG_PANEL; c++)
                halves[(k / 2 * HG_PANEL + c) * 2 + k % 2] = c < num ? hg_bf16_of_float(w[k * down + c * across]) : 0;
        else if (across == 1 && num == HG_PANEL)
            memcpy(numbers + k * HG_PANEL, w + k * down, HG_PANEL * sizeof *w);
        else
            for (int64_t c = 0; c < HG_PANEL; c++)
                numbers[k * HG_PANEL + c] = c < num ? w[k * down + c * across] : 0;
    for (int64_t c = 0; rounded && depth % 2 && c < HG_PANEL; c++)
        halves[(depth / 2 * HG_PANEL + c) * 2 + 1] = 0;
}

void hg_pack_weights(const hg_weights *w, const float *from, int64_t down, int64_t across)
{
    const int64_t size = hg_panels_size(w->rounded, w->depth, HG_PANEL);
    #pragma omp for schedule(static)
    for (int64_t p = 0; p < hg_panels_of(w->width); p++)
        hg_pack_panel(w->rounded, (float *)w->panels + p * size, from + p * HG_PANEL * across, down, across, w->depth,
                      hg_least(w->width - p * HG_PANEL, HG_PANEL));
}

void hg_multiply_block(const hg_weights *w, float *y, int64_t y_stride, const void *x, int64_t x_stride, const float *bias,
                       int64_t rows, int add, const hg_ahead *ahead)
{
    const int64_t words = hg_words_of(w->rounded, w->depth), panels = hg_panels_of(w->width);
    for (int64_t first = 0; first < w->width; first += HG_PANEL) {
        hg_ask_for(ahead, first / HG_PANEL, panels);
        const float *panel = (float *)w->panels + first * words, *biases = bias ? bias + first : NULL;
        const int64_t num = hg_least(w->width - first, HG_PANEL);
#if defined(HG_PAIRS)
        if (w->rounded) {
            hg_multiply_pairs(y + first, y_stride, x, x_stride, 1, (const uint32_t *)panel, biases, rows, words, num, add);
            continue;
        }
#endif
        w->kernels->multiply(y + first, y_stride, x, x_stride, panel, biases, rows, w->depth, num, add);
    }
}

void hg_multiply_transposed(const hg_weights *w, float *sums, const void *x, int64_t x_stride, const void *right,
                            int64_t right_stride, int64_t rows, int64_t depth)
{
#if defined(HG_PAIRS)
    if (w->rounded) {
        hg_multiply_pairs(sums, HG_PANEL, x, 1, x_stride, right, NULL, depth, hg_words_of(1, rows), HG_PANEL, 1);
        return;
    }
#endif
    w->kernels->multiply_transposed(sums, x, x_stride, right, right_stride, rows, depth);
}

const float *hg_widened(const hg_weights *w, float *scratch, const void *x, int x_type, int64_t *stride, int64_t rows,
                        int64_t depth)
{
    if (x_type == HG_F32)
        return x;
    w->kernels->widen(scratch, depth, x, *stride, rows, depth);
    *stride = depth;
    return scratch;
}

/* Where a block of rows of x stands as it is multiplied, made in `scratch` unless it is there already; *stride: see
 * hg_widened. */
static const void *factors_of(const hg_weights *w, float *scratch, const void *x, int x_type, int64_t *stride, int64_t rows)
{
#if defined(HG_PAIRS)
    if (w->rounded && x_type == HG_BF16 && w->depth % 2 == 0 && *stride % 2 == 0) {
        *stride /= 2;
        return x;                       /* they are pairs */
    }
    if (w->rounded) {
        const float *from = hg_widened(w, scratch, x, x_type, stride, rows, w->depth);
        uint32_t *pairs = (uint32_t *)scratch + HG_ROWS * w->depth;
        hg_pair_columns(pairs, hg_words_of(1, w->depth), from, *stride, rows, w->depth);
        *stride = hg_words_of(1, w->depth);
        return pairs;
    }
#endif
    return hg_widened(w, scratch, x, x_type, stride, rows, w->depth);
}

/* out (rows, width) = x (rows, depth) weight (depth, width), added to what out holds if `add`, plus bias (width) unless NULL. x
 * is of x_type, HG_F32 or HG_BF16; element (k, c) of weight stands at
 * k * weight_down + c * weight_across. Each element is one sum
 * over k in order, whatever the number of threads. Returns 0, or -1: no memory. */
HG_EXPORT int hg_multiply(int path, int rounded, int num_threads, float *out, int64_t out_stride, const void *x, int x_type,
                          int64_t x_stride, const float *weight, int64_t weight_down, int64_t weight_across,
                          const float *bias, int64_t rows, int64_t depth, int64_t width, int add)
{
    const int64_t columns = hg_panels_of(width) * HG_PANEL, size = hg_panels_size(rounded, depth, width);
    const int64_t scratch = HG_ROWS * (depth + hg_words_of(1, depth));
    if (rows == 0 || width == 0)
        return 0;
    if (rows * depth * width < HG_FEW_PRODUCTS)
        num_threads = 1;
    static _Thread_local hg_memory kept;
    float *packed = hg_kept(&kept, (size + columns + num_threads * scratch) * (int64_t)sizeof *packed);
    if (!packed)
        return -1;
    const hg_weights weights = {packed, depth, width, &hg_table(path)->products, rounded};
    float *biases = packed + size;
    for (int64_t c = 0; bias && c < columns; c++)
        biases[c] = c < width ? bias[c] : 0;
    #pragma omp parallel num_threads(num_threads)
    {
        float *mine = biases + columns + omp_get_thread_num() * scratch;
        hg_pack_weights(&weights, weight, weight_down, weight_across);
        #pragma omp for schedule(static)
        for (int64_t first = 0; first < rows; first += HG_ROWS) {
            const int64_t num = hg_least(rows - first, HG_ROWS);
            const hg_ahead next = hg_next_block(x, x_type, x_stride, depth, first, rows);
            const char *block = (const char *)x + first * x_stride * hg_size_of(x_type);
            int64_t stride = x_stride;
            const void *from = factors_of(&weights, mine, block, x_type, &stride, num);
            hg_multiply_block(&weights, out + first * out_stride, out_stride, from, stride, bias ? biases : NULL, num,
                              add, &next);
        }
    }
    return 0;
}
