/* The interface of the matrix product of float32: products.c and projection.c have the scheduling, products_avx2.c the
 * serial kernels. */
#ifndef HG_PRODUCTS_H
#define HG_PRODUCTS_H

#include "hg.h"

/* The weights are cut into panels of so many columns, each stored row after row. */
#define HG_PANEL 16
/* Rows of results that are in registers at a time. */
#define HG_HEIGHT 6
/* Rows that one thread multiplies with all panels, one after the other: a multiple of HG_HEIGHT. */
#define HG_ROWS 48
#define HG_FEW (1 << 18)        /* multiplications below which waking other threads costs more than they save */

static inline int64_t hg_panels_of(int64_t columns)
{
    return (columns + HG_PANEL - 1) / HG_PANEL;
}

/* `num` columns of the weights w (depth, …), element (k, c) of which stands at k * w_down + c * w_across; zeros behind them. */
void hg_pack_panel(float *panel, const float *w, int64_t w_down, int64_t w_across, int64_t depth, int64_t num);

/* All panels of the weights w (depth, width). Called by every thread of a parallel region, which share them and wait at the end. */
void hg_pack_panels(float *packed, const float *w, int64_t w_down, int64_t w_across, int64_t depth, int64_t width);

/* y (rows, width) = x (rows, depth) times the panels one after the other, as hg_multiply has it; bias: NULL, or as wide as all
 * panels. By one thread. */
void hg_multiply_block(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *packed, const float *bias,
                       int64_t rows, int64_t depth, int64_t width, int add);

/* y (rows, num) = x (rows, depth) times a panel, `num` of whose columns count; added to what y holds if `add`, plus bias
 * (HG_PANEL) unless NULL. What lies behind the panel is asked for meanwhile, as the next one. */
typedef void hg_multiply_kernel(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                                const float *bias, int64_t rows, int64_t depth, int64_t num, int add);

/* sums (depth, HG_PANEL) += x (rows, depth) transposed, times panel (rows, HG_PANEL). */
typedef void hg_multiply_transposed_kernel(float *sums, const float *x, int64_t x_stride, const float *panel, int64_t rows,
                                           int64_t depth);

#if defined(__x86_64__)
hg_multiply_kernel hg_multiply_avx2;
hg_multiply_transposed_kernel hg_multiply_transposed_avx2;
#endif

#endif
