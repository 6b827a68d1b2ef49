/* What attention.c and the templates attention_*.h share: how many edges are treated at a time, and the memory that is
 * for. */
#ifndef HG_ATTENTION_H
#define HG_ATTENTION_H

#include "hg.h"

/* Edges whose weights are formed before their rows are read: long enough for full vectors with one head, short enough
 * for the weights of many heads to stay in the L1 cache. */
#define HG_TILE 32

/* Memory of one thread, and what the kernels need besides the arguments. Sizes are those of hg_attention_scratch. */
typedef struct {
    const hg_kernels *table;
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
    void *rows;                 /* (HG_TILE, hg_made_width): rows that edges' data change, or NULL */
} hg_attention_scratch;

/* Backwards, of attention by whole rows: where a task leaves what its edges return, edge e at e - base. */
typedef struct {
    void *coefficient, *derivative;     /* (edges, H): m alpha, and the gradients of the scores */
    int32_t *rows;                      /* own rows of the edges; NULL: the task returns at once */
    int64_t base;
    void *g_attention, *g_weight;       /* (F), and as of weight: the task's sums, or NULL */
} hg_score_edges;

/* A sum whose values are not what is scored: edges' data change one of them. */
#define HG_SCORE_APART 4

static inline int hg_score_kind(const hg_attention_args *a)
{
    return a->score == HG_SCORE_SUM && a->weight ? HG_SCORE_APART : a->score;
}

/* Columns of a row that edges' data change: [key | value], or of mixed ones the value. */
static inline int64_t hg_made_width(const hg_attention_args *a)
{
    return a->heads * a->head_width * (a->score == HG_SCORE_MIXED ? 1 : 2);
}

/* Columns of an own row, of its gradient, and of a row that returns to a source. */
static inline int64_t hg_own_width(const hg_attention_args *a)
{
    const int64_t each = a->score == HG_SCORE_MIXED ? a->weight_columns : a->head_width;
    return a->score == HG_SCORE_RELATED ? a->weight_columns * each : a->heads * each;
}

#endif
