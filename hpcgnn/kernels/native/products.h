/* The interface of matrix products: products.c and projection.c have the scheduling, products_rows.h and
 * products_bf16.c the serial kernels. Rounded factors are no vector path but instructions that a processor has beside
 * it.
 *
 * Factors are float32, or rounded to bfloat16 (`rounded`), two to a word; sums are float32 in any case. A *panel* is
 * HG_PANEL columns of a matrix, row after row; rounded, its rows are paired: word (k, c) has rows 2 k and 2 k + 1 of
 * column c, the first in its low half, and zeros where there is no second.
 */
#ifndef HG_PRODUCTS_H
#define HG_PRODUCTS_H

#include "hg.h"
#include "table.h"

#define HG_PANEL 16
/* Rows that one thread multiplies with all panels, one after the other: a multiple of those in registers at a time. */
#define HG_ROWS 48
#define HG_FEW_PRODUCTS (1 << 18)   /* multiplications below which waking other threads costs more than they save */

/* Whether this compiler knows the products of pairs of bfloat16. */
#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 13) || (!defined(__clang__) && __GNUC__ >= 10))
#define HG_PAIRS 1
#endif

/* A matrix (depth, width) as rows are multiplied with it: its panels, one after the other. */
typedef struct {
    void *panels;
    int64_t depth;
    int64_t width;
    const hg_product_kernels *kernels;
    int rounded;
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

/* Numbers of 32 bits that so many rows take in a panel's column, or a row of so many factors to be multiplied with panels. */
static inline int64_t hg_words_of(int rounded, int64_t numbers)
{
    return rounded ? (numbers + 1) / 2 : numbers;
}

/* Numbers of 32 bits in the panels of a matrix. */
static inline int64_t hg_panels_size(int rounded, int64_t depth, int64_t width)
{
    return hg_panels_of(width) * HG_PANEL * hg_words_of(rounded, depth);
}

/* `num` columns of w (depth, …), element (k, c) of which stands at k * down + c * across, as a panel; zeros behind them. */
void hg_pack_panel(int rounded, void *panel, const float *w, int64_t down, int64_t across, int64_t depth, int64_t num);

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
 * panels) unless NULL. x_stride counts words: x has float32, or rounded pairs of the numbers of a row. By one thread. */
void hg_multiply_block(const hg_weights *w, float *y, int64_t y_stride, const void *x, int64_t x_stride, const float *bias,
                       int64_t rows, int add, const hg_ahead *ahead);

/* sums (depth, HG_PANEL) += x (rows, depth) transposed, times right (rows, HG_PANEL). Strides count words: both have
 * float32, or they are rounded, and have words (k, d) as of a panel. */
void hg_multiply_transposed(const hg_weights *w, float *sums, const void *x, int64_t x_stride, const void *right,
                            int64_t right_stride, int64_t rows, int64_t depth);

/* x (rows, depth) of x_type, HG_F32 or HG_BF16, as it is multiplied: as float32, x itself where it is that, else at `scratch`
 * (rows, depth). *stride: of x, and then of what is returned. */
const float *hg_widened(const hg_weights *w, float *scratch, const void *x, int x_type, int64_t *stride, int64_t rows,
                        int64_t depth);

#if defined(HG_PAIRS)
/* y (rows, num) = the sums over k < words of the products of the pairs at x[i * down + k * across] with those of panel[k]. */
void hg_multiply_pairs(float *y, int64_t y_stride, const uint32_t *x, int64_t down, int64_t across, const uint32_t *panel,
                       const float *bias, int64_t rows, int64_t words, int64_t num, int add);
/* Pairs of the numbers of each row: x (rows, depth) rounded. stride counts words. */
void hg_pair_columns(uint32_t *to, int64_t stride, const float *x, int64_t x_stride, int64_t rows, int64_t depth);
/* Pairs of rows: word (k, c) of rows 2 k and 2 k + 1 of x (rows, columns). stride counts words. */
void hg_pair_rows(uint32_t *to, int64_t stride, const float *x, int64_t x_stride, int64_t rows, int64_t columns);
#endif

#endif
