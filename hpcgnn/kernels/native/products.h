/* The interface of the matrix product of float32: products.c has the scheduling, products_avx2.c the serial kernel. */
#ifndef HG_PRODUCTS_H
#define HG_PRODUCTS_H

#include "hg.h"

/* The weights are cut into panels of so many columns, each stored row after row. */
#define HG_PANEL 16
/* Rows of results that are in registers at a time. */
#define HG_HEIGHT 6

/* y (rows, num) = x (rows, depth) times a panel, `num` of whose columns count; added to what y holds if `add`, plus bias
 * (HG_PANEL) unless NULL. What lies behind the panel is asked for meanwhile, as the next one. */
typedef void hg_multiply_kernel(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                                const float *bias, int64_t rows, int64_t depth, int64_t num, int add);

#if defined(__x86_64__)
hg_multiply_kernel hg_multiply_avx2;
#endif

#endif
