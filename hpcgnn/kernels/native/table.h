/* Tables of functions per vector path: whatever is compiled for each of them. Functions are serial and know of no threads.
 * The tables are filled in common.h and typed.h; an exported function asks hg_table for its path's once.
 */
#ifndef HG_TABLE_H
#define HG_TABLE_H

#include "attention.h"
#include "hg.h"

typedef struct {
    /* Rows [first, last) of the block, hubs left out. */
    void (*rows)(const hg_gather_args *a, int64_t first, int64_t last);
    /* Sum of the edges [first, last) into partial[width], of the accumulation type. */
    void (*chunk)(const hg_gather_args *a, int64_t first, int64_t last, void *partial);
    /* Row i of the block from its chunks' sums, partial[num_chunks][width], added in order (partial is overwritten). */
    void (*finish)(const hg_gather_args *a, int64_t i, void *partial, int64_t num_chunks);
} hg_gather_kernels;

typedef struct {
    /* Rows [first, last) of the block, hubs left out. */
    void (*forward_rows)(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last);
    /* Edges [first, last) of row i, into partial: sums (F), maximum (H), denominator (H). */
    void (*forward_chunk)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                          void *partial);
    /* Adds num partials to row i, in order; of a complete block's row, begins or ends it, too. */
    void (*forward_merge)(const hg_attention_args *a, int64_t i, const void *partial, int64_t num, int begins, int ends);
    /* The same; the gradient of edge e's logits goes to gradient + e * stride. */
    void (*backward_rows)(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last,
                          void *gradient, int64_t stride);
    /* partial: gz (F), ga_src (H), which it clears first. */
    void (*backward_chunk)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                           void *partial, void *gradient, int64_t stride);
    /* Of a complete block's row it continues the sums `before`, unless NULL, and leaves its own in `after`; where that is
     * NULL the row ends. Uses up the partials. */
    void (*backward_merge)(const hg_attention_args *a, int64_t i, void *partial, int64_t num, const void *before,
                           void *after);
    /* Attention by whole rows (score_rows.h), backwards: the same rows, a hub's chunk (partial: F) and its merging. */
    void (*score_rows)(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last,
                       const hg_score_edges *edges);
    void (*score_chunk)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                        void *partial, const hg_score_edges *edges);
    void (*score_merge)(const hg_attention_args *a, int64_t i, const void *partial, int64_t num);
    /* Adds what the listed ones (NULL: all) of num edges return. coefficients, derivatives and rows begin at edge `first`. */
    void (*score_return)(const hg_attention_args *a, hg_attention_scratch *s, const void *coefficients, const void *derivatives,
                         const int32_t *rows, int64_t r, int64_t first, const int32_t *order, int64_t num);
    void (*score_add)(void *sums, const void *more, int64_t num);
} hg_attention_kernels;

/* What is done to rows between two layers, row by row. */
typedef struct {
    /* One row of ELU. */
    void (*elu)(void *out, const void *x, int64_t width);
    /* out = gy * (y > 0 ? 1 : y + 1) for y = ELU(...), or gy if y is NULL; unless NULL, sums += out, then, if `scaled`,
     * out of head h is multiplied by dots[h], and, unless NULL, dots[h] = <out, x - bias> of head h. out may be any of
     * the others. */
    void (*elu_gradient)(void *out, const void *gy, const void *y, const void *x, const void *bias, void *dots, void *sums,
                         int64_t heads, int64_t width, int scaled);
    void (*normalise)(void *y, const void *denominator, const void *bias, int64_t heads, int64_t width);
    /* The only one of several rows: their sums stay in registers for longer. */
    void (*bias_gradient)(void *sums, const void *gy, int64_t gy_stride, int64_t rows, int64_t width);
} hg_between_kernels;

/* Batch normalisation (norm.h). */
typedef struct {
    void (*column_sums)(double *sums, const void *x, int64_t stride, const void *mean, int64_t rows, int64_t width);
    void (*gradient_sums)(double *sums, const void *gy, int64_t gy_stride, const void *x, int64_t x_stride,
                          const void *mean, const void *inverse, int64_t rows, int64_t width);
    /* One row; vectors: mean, inverse, weight, bias. */
    void (*normalise)(void *y, const void *x, const void *const vectors[4], int64_t width);
    /* One row; vectors: mean, inverse, mean of gy, mean of its products with what is normalised, factor. */
    void (*gradient)(void *gx, const void *gy, const void *x, const void *const vectors[5], int64_t width);
} hg_norm_kernels;

/* Rows in few bits (narrow.h). */
typedef struct {
    /* The largest magnitude of a row; NaN if any number is not finite. */
    double (*magnitude)(const void *x, int64_t width);
    /* The levels of num columns of a row, HG_LEVELS at most, by their random words. */
    void (*levels)(uint8_t *levels, const void *x, const uint32_t *words, int64_t num, double step);
    /* A whole row from its levels. */
    void (*widen)(void *out, const void *narrow, int64_t width, float step);
    /* The codes of num columns of a row, HG_CODED at most, by halves of random words, and back. */
    void (*codes)(int8_t *codes, const void *x, const uint16_t *halves, int64_t num, double step);
    void (*decode)(void *out, const int8_t *codes, int64_t num, float step);
} hg_narrow_kernels;

/* Products with panels of HG_PANEL columns (products.h); NULL on the baseline path. */
typedef struct {
    int64_t columns;            /* of the panels that the two products take at a time */
    /* y (rows, num) = x (rows, depth) times some panels, of which `num` columns count; bias: of whole panels, or NULL.
     * Added to what y holds if `add`. What lies behind the panels is asked for meanwhile, as the next ones. */
    void (*multiply)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel, const float *bias,
                     int64_t rows, int64_t depth, int64_t num, int add);
    /* sums (depth, HG_PANEL) += x (rows, depth) transposed, times right (rows, HG_PANEL), of the panels of `num` columns. One of
     * sums or of right begins so many numbers behind the one before it. */
    void (*multiply_transposed)(float *sums, int64_t sums_apart, const float *x, int64_t x_stride, const float *right,
                                int64_t right_apart, int64_t right_stride, int64_t rows, int64_t depth, int64_t num);
    /* x (rows, depth) of bfloat16 as float32. */
    void (*widen)(float *to, int64_t stride, const uint16_t *x, int64_t x_stride, int64_t rows, int64_t depth);
    /* to (num, width) = rows first, first + 1, … of `from`, or those that index names there; added to what is there if `add`. A
     * call for each row would take longer than the row. */
    void (*take_rows)(float *to, int64_t to_stride, const float *from, int64_t stride, const int32_t *index, int64_t first,
                      int64_t num, int64_t width, int add);
    void (*layer_norm)(float *y, int64_t y_stride, float *normal, float *inverse, const float *x, int64_t x_stride,
                       const float *scale, const float *shift, float epsilon, int64_t rows, int64_t width);
    void (*layer_norm_gradient)(float *gx, int64_t gx_stride, const float *gy, int64_t gy_stride, const float *normal,
                                const float *inverse, const float *scale, float *sums, int64_t rows, int64_t width);
} hg_product_kernels;

/* Whatever is written for an element type. */
typedef struct {
    /* Rows [first, last) of the block; see kernels/aggregation.py. */
    void (*largest)(const hg_extreme_args *a, int64_t first, int64_t last);
    void (*largest_gradient)(const hg_extreme_args *a, int64_t first, int64_t last);
    hg_attention_kernels attention;
    hg_between_kernels between;
    /* The loss of one row is the result + log *power; gradient: NULL, or that of x, which may be x itself. */
    double (*cross_entropy)(void *gradient, const void *x, int64_t width, int64_t label, double *power);
    hg_narrow_kernels narrow;
} hg_typed_kernels;

struct hg_kernels {
    hg_gather_kernels gather[HG_GATHERED];
    const hg_typed_kernels *of[HG_COMPUTED];
    /* out[c] = scale * x[c] for one row; [x type][out type], NULL where there is no such conversion. */
    void (*copy_row[HG_GATHERED][HG_GATHERED])(void *out, const void *x, int64_t width, double scale);
    /* out[c] += scale * x[c] for one row. */
    void (*add_row[HG_TYPES])(void *out, const void *x, int64_t width, double scale);
    /* Philox of num counters held as four arrays; words[4 * i + k] is word k of counter i. The arrays must be
     * readable, and words writable, up to the next multiple of 8 counters. */
    void (*philox_blocks)(const hg_round_keys *keys, const uint32_t *c0, const uint32_t *c1, const uint32_t *c2,
                          const uint32_t *c3, int64_t num, uint32_t *words);
    /* Philox of the counters (first_group + i, id low, id high, 0), i < num; writes as philox_blocks does. */
    void (*philox_row)(const hg_round_keys *keys, int64_t id, uint32_t first_group, int64_t num, uint32_t *words);
    /* out[c] = words[c] >= threshold ? scale * x[c] : 0, of ReLU of x with `relu`; out may be x. */
    void (*drop[HG_TYPES])(void *out, const void *x, const uint32_t *words, int64_t num, const hg_dropout_rule *rule);
    /* out[c] = *part * that + (1 - *part) * x[c], rounded as by torch's mul_ and addcmul_; part is of x's type. */
    void (*drop_part[HG_TYPES])(void *out, const void *x, const uint32_t *words, int64_t num,
                                const hg_dropout_rule *rule, const void *part);
    /* out[c] = y[c] <= 0 ? 0 : scale * gradient[c], which may be one of them; gradient is of the accumulation type. */
    void (*relu_gradient[HG_TYPES])(void *out, const void *gradient, const void *y, int64_t width, double scale);
    hg_norm_kernels norm[HG_TYPES];
    hg_product_kernels products;
};

/* The vector paths of this library: all of the architecture, or the widest of one processor alone (setup.py). */
#define HG_TABLES(path)                                                                                                \
    extern const hg_kernels hg_kernels##path;                                                                          \
    extern const hg_typed_kernels hg_f32##path, hg_f64##path
#if !defined(HG_WITHOUT_BASELINE)
#define HG_HAS_BASELINE
HG_TABLES(_baseline);
#endif
#if defined(__x86_64__) && !defined(HG_WITHOUT_AVX2)
#define HG_HAS_AVX2
HG_TABLES(_avx2);
#endif
#if defined(__x86_64__) && !defined(HG_WITHOUT_AVX512)
#define HG_HAS_AVX512
HG_TABLES(_avx512);
#endif

/* The table of a vector path. */
const hg_kernels *hg_table(int path);

#endif
