/* The interface of the attention kernels, in the layers of hg.h: attention.c has the scheduling, attention_baseline.c
 * and its likes one table of serial kernels per vector path, attention_*.h the templates they are made of.
 *
 * Both directions walk the edges of the stored rows and read one streamed row per edge. What the rows hold differs:
 *
 *                forward                               backward
 *   stored row   a destination                         an own node as a source
 *   streamed     [z | a_src] of the sources            [gy | a_dst, lse, D] of the destinations (see attention.py)
 *   own          a_dst                                 [z | a_src]
 *   sums         y                                     gz
 *
 * Of a complete block nothing but ga_dst need be cleared before, and gz and ga_src may stand exactly where [z | a_src] does.
 * All sizes and strides count elements.
 */
#ifndef HG_ATTENTION_H
#define HG_ATTENTION_H

#include "hg.h"

/* Edges whose weights are formed before their rows are read: long enough for full vectors with one head, short enough
 * for the weights of many heads to stay in the L1 cache. */
#define HG_TILE 32

static inline int64_t hg_shares_of(int64_t rows)
{
    return (rows + HG_SUMMED_ROWS - 1) / HG_SUMMED_ROWS;
}

/* Memory of one thread, and what the kernels need besides the arguments. Sizes are those of hg_attention_scratch. */
typedef struct {
    void (*philox_blocks)(const hg_round_keys *keys, const uint32_t *c0, const uint32_t *c1, const uint32_t *c2,
                          const uint32_t *c3, int64_t num, uint32_t *words);
    hg_round_keys keys;
    uint32_t *counters[4], *words;
    void *coefficient;          /* (HG_TILE, H): what multiplies the streamed row */
    void *shift;                /* (HG_TILE, H): D, backwards */
    void *derivative;           /* (HG_TILE, H): alpha * that of the leaky ReLU, backwards */
    void *other;                /* (HG_TILE, H) */
    void *dots;                 /* (HG_TILE, H), backwards */
    void *factor;               /* (H); backwards ga_src of a complete block's row */
    void *sums;                 /* (F, padded to whole vectors per head) */
    void *z;                    /* the same: z', backwards */
    void *bias;                 /* the same */
} hg_attention_scratch;

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
    /* One row of what stands between layers of attention (between.h); here because it shares the exponential. */
    void (*elu)(void *out, const void *x, int64_t width);
    /* out = gy * (y > 0 ? 1 : y + 1) for y = ELU(...), or gy if y is NULL; unless NULL, sums += out, then, if `scaled`, out of
     * head h is multiplied by dots[h], and, unless NULL, dots[h] = <out, x - bias> of head h. out may be any of the others. */
    void (*elu_gradient)(void *out, const void *gy, const void *y, const void *x, const void *bias, void *dots, void *sums,
                         int64_t heads, int64_t width, int scaled);
    void (*normalise)(void *y, const void *denominator, const void *bias, int64_t heads, int64_t width);
    /* The only one of several rows: their sums stay in registers for longer. */
    void (*bias_gradient)(void *sums, const void *gy, int64_t gy_stride, int64_t rows, int64_t width);
    /* One row of the loss (loss.h), for the same reason. */
    double (*cross_entropy)(void *gradient, const void *x, int64_t width, int64_t label, double *power);
} hg_attention_kernels;

/* The table of a vector path and an element type. */
const hg_attention_kernels *hg_attention_table(int path, int type);

/* One table per path, indexed by element type. */
extern const hg_attention_kernels hg_attention_baseline[2];
#if defined(__x86_64__)
extern const hg_attention_kernels hg_attention_avx2[2];
extern const hg_attention_kernels hg_attention_avx512[2];
#endif

#endif
