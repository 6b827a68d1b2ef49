/* Products of the rows of many nodes with a small matrix of weights: who does which rows.
 *
 * A block of rows, the weights, and the block's results are to fit the second-level cache (of 512 KiB; with 256 columns they
 * take 350): the panels then pass through the first-level cache, each once for all rows of the block.
 */
#include "products.h"

#include <string.h>

#include "vector.h"

void hg_pack_panel(float *panel, const float *w, int64_t down, int64_t across, int64_t depth, int64_t num)
{
    for (int64_t k = 0; k < depth; k++)
        if (across == 1 && num == HG_PANEL)
            memcpy(panel + k * HG_PANEL, w + k * down, HG_PANEL * sizeof *w);
        else
            for (int64_t c = 0; c < HG_PANEL; c++)
                panel[k * HG_PANEL + c] = c < num ? w[k * down + c * across] : 0;
}

void hg_pack_weights(const hg_weights *w, const float *from, int64_t down, int64_t across)
{
    const int64_t size = hg_panels_size(w->depth, HG_PANEL);
    #pragma omp for schedule(static)
    for (int64_t p = 0; p < hg_panels_of(w->width); p++)
        hg_pack_panel(w->panels + p * size, from + p * HG_PANEL * across, down, across, w->depth,
                      hg_least(w->width - p * HG_PANEL, HG_PANEL));
}

void hg_multiply_block(const hg_weights *w, float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *bias,
                       int64_t rows, int add, const hg_ahead *ahead)
{
    const int64_t columns = w->kernels->columns, parts = (w->width + columns - 1) / columns;
    for (int64_t first = 0; first < w->width; first += columns) {
        hg_ask_for(ahead, first / columns, parts);
        w->kernels->multiply(y + first, y_stride, x, x_stride, w->panels + first * w->depth, bias ? bias + first : NULL, rows,
                             w->depth, hg_least(w->width - first, columns), add);
    }
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
