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
} hg_attention_scratch;

/* Backwards, of attention by whole rows: where a task leaves what its edges return, edge e at e - base. */
typedef struct {
    void *coefficient, *derivative;     /* (edges, H): m alpha, and the gradients of the scores */
    int32_t *rows;                      /* own rows of the edges; NULL: the task returns at once */
    int64_t base;
    void *g_attention;                  /* (F): the task's sum, or NULL */
} hg_score_edges;

#endif
