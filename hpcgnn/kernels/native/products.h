/* The interface of matrix products: products.c and projection.c have the scheduling, products_rows.h the serial kernels.
 *
 * Factors and sums are float32. A *panel* is HG_PANEL columns of a matrix, row after row.
 */
#ifndef HG_PRODUCTS_H
#define HG_PRODUCTS_H

#include "hg.h"
#include "table.h"

#define HG_PANEL 16
#define HG_LINE 16              /* numbers of a cache line */
/* Rows that one thread multiplies with all panels, one after the other: a multiple of those in registers at a time. */
#define HG_ROWS 48
#define HG_PAD 16               /* numbers between rows: columns of rows of a power of two would share few sets of the cache */
#define HG_FEW_PRODUCTS (1 << 18)   /* multiplications below which waking other threads costs more than they save */

/* A matrix (depth, width) as rows are multiplied with it: its panels, one after the other. */
typedef struct {
    float *panels;
    int64_t depth;
    int64_t width;
    const hg_product_kernels *kernels;
} hg_weights;

/* Rows that are needed in a while: `num` of them, of so many bytes each, `stride` bytes apart. */
typedef struct {
    const char *rows;
    int64_t num;
    int64_t stride;
    int64_t bytes;
} hg_ahead;

static inline int64_t hg_panels_of(int64_t columns)
{
    return (columns + HG_PANEL - 1) / HG_PANEL;
}

/* Numbers in the panels of a matrix. */
static inline int64_t hg_panels_size(int64_t depth, int64_t width)
{
    return hg_panels_of(width) * HG_PANEL * depth;
}

/* `num` columns of w (depth, …), element (k, c) of which stands at k * down + c * across, as a panel; zeros behind them. */
void hg_pack_panel(float *panel, const float *w, int64_t down, int64_t across, int64_t depth, int64_t num);

/* All panels of w->width columns. Called by every thread of a parallel region, which share them and wait at the end. */
void hg_pack_weights(const hg_weights *w, const float *from, int64_t down, int64_t across);

/* The block of rows of a matrix (…, width) behind that which begins at `first`, as far as it is before `end`. */
static inline hg_ahead hg_next_block(const void *matrix, int type, int64_t stride, int64_t width, int64_t first,
                                     int64_t end)
{
    const int64_t size = hg_size_of(type), next = first + HG_ROWS, left = end > next ? end - next : 0;
    return (hg_ahead){(const char *)matrix + next * stride * size, hg_least(left, HG_ROWS), stride * size, width * size};
}

/* Asks for part number `part` of `parts` of the rows: memory then delivers them while the processor multiplies. */
static inline void hg_ask_for(const hg_ahead *ahead, int64_t part, int64_t parts)
{
    for (int64_t i = part * ahead->num / parts; i < (part + 1) * ahead->num / parts; i++)
        for (int64_t b = 0; b < ahead->bytes; b += 64)
            __builtin_prefetch(ahead->rows + i * ahead->stride + b, 0, 2);
}

/* y (rows, w->width) = x (rows, w->depth) times the weights; added to what y holds if `add`, plus bias (as wide as all
 * panels) unless NULL. By one thread. */
void hg_multiply_block(const hg_weights *w, float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *bias,
                       int64_t rows, int add, const hg_ahead *ahead);

/* hg_project_backward by parts, for who does more in a parallel region: numbers of memory for so many rows or fewer; then all of it,
 * by every thread. They wait before anything is written and when all is read, but not for the end of g_weight and of columns' sums.
 * weights: transposed, of width 0 without gx. */
int64_t hg_memory_backward(int path, int num_threads, const hg_projection_args *a);
void hg_project_rows_backward(int path, int num_threads, const hg_projection_args *a, const hg_weights *weights, float *memory);

/* x (rows, depth) of x_type, HG_F32 or HG_BF16, as it is multiplied: as float32, x itself where it is that, else at `scratch`
 * (rows, depth). *stride: of x, and then of what is returned. */
const float *hg_widened(const hg_weights *w, float *scratch, const void *x, int x_type, int64_t *stride, int64_t rows,
                        int64_t depth);

#endif
