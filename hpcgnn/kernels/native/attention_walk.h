/* How attention's edges are cut into tasks and waves, with the memory of a wave: what attention.c and scores.c share. */
#ifndef HG_ATTENTION_WALK_H
#define HG_ATTENTION_WALK_H

#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "table.h"

#define HG_TASK 1024            /* edges; at width 256 a task is 1 MiB of reads */
#define HG_LEAST_TASK 128
#define HG_WAVE_TASKS 4096
#define HG_BUCKETS 1024         /* at most; each takes every so many-th group of columns: none has all the work */
#define HG_GROUP 4              /* of 1 << 4 columns, a cache line of numbers */
#define HG_SMALL_BLOCK 4096             /* edges * width below which waking other threads costs more than they save */

typedef struct {
    int64_t first_row, last_row, first_edge, last_edge;
    int64_t chunk;              /* number of the hub chunk within the wave, or -1 for whole rows */
} hg_task;

/* What a wave has of a hub: a wave may end in the middle of it. */
typedef struct {
    int64_t row, first_chunk, num_chunks;
    int begins, ends;           /* whether it has the row's first edge, and its last one */
} hg_hub;

typedef struct {
    const hg_attention_args *a;
    const hg_attention_kernels *kernels;
    hg_attention_scratch *scratch;      /* one per thread */
    char *memory, *partial;
    hg_task *tasks;
    hg_hub *hubs;
    int64_t num_tasks, num_chunks, num_hubs;
    int64_t most_tasks;                 /* of a wave */
    /* A task has at most this part of what is left of its wave, so that the last ones are small, and rows of many edges come
     * first. 0: all tasks are alike, in the order of the edges. */
    int64_t part;
    int64_t first_edge;                 /* of the wave */
    int64_t row, edge;                  /* where the next wave starts */
    int64_t size;                       /* bytes of an element */
    int64_t partial_width;
    int num_threads, number;            /* number: of the wave, modulo 2 */
    /* Backwards: the sums of a complete block's hub that a wave leaves unfinished. A wave continues those at its own number
     * and leaves its own at the other: one hub may end and another begin in it. */
    char *between[2];
} hg_walk;

static inline int64_t rounded(int64_t bytes)
{
    return (bytes + 127) / 64 * 64;     /* a whole register may be read and written beyond the end */
}

/* Cuts `at` into one thread's pieces; returns the bytes used. With s NULL it only measures. */
static inline int64_t carve(const hg_attention_args *a, int64_t size, char *at, hg_attention_scratch *s)
{
    const int64_t tile = rounded(HG_TILE * a->heads * size), groups = HG_TILE * ((a->heads + 3) / 4);
    const int64_t padded = rounded(a->heads * (a->head_width + 64 / size) * size);
    void **tiles[] = {s ? &s->coefficient : 0, s ? &s->shift : 0, s ? &s->derivative : 0, s ? &s->other : 0,
                      s ? &s->dots : 0};
    int64_t used = 0;
    for (int k = 0; k < 5; k++, used += tile)
        if (s)
            *tiles[k] = at + used;
    if (s)
        s->factor = at + used;
    used += rounded(a->heads * size);
    if (s)
        s->sums = at + used, s->z = at + used + padded, s->bias = at + used + 2 * padded;
    used += 3 * padded;
    for (int k = 0; k < 4 && a->row_ids; k++, used += rounded(groups * 4))
        if (s)
            s->counters[k] = (uint32_t *)(at + used);
    if (a->weight) {
        if (s)
            s->rows = at + used;
        used += rounded(HG_TILE * hg_made_width(a) * size);
    }
    if (a->row_ids) {
        if (s)
            s->words = (uint32_t *)(at + used);
        used += rounded((groups + 8) * 16);
    }
    return used;
}

/* Returns 0, or -1 if there is no memory. */
static inline int begin_walk(hg_walk *w, int path, int num_threads, const hg_attention_args *a, int64_t extra)
{
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0];
    const hg_kernels *table = hg_table(path);
    memset(w, 0, sizeof *w);
    w->a = a;
    w->kernels = &table->of[a->type]->attention;
    w->size = hg_size_of(a->type);
    w->edge = a->indptr[0];
    w->most_tasks = HG_WAVE_TASKS;
    w->partial_width = a->heads * (a->head_width + extra);
    w->num_threads = num_edges * a->heads * a->head_width < HG_SMALL_BLOCK ? 1 : num_threads;
    const int64_t each = carve(a, w->size, NULL, NULL);
    const int64_t most_chunks = num_edges / HG_HUB_EDGES * 2;
    const int64_t chunks = most_chunks < HG_WAVE_CHUNKS ? most_chunks : HG_WAVE_CHUNKS;
    const int64_t most = num_edges + HG_ROW_COST * a->num_rows;
    const int64_t tasks = hg_least(2 * (most / HG_LEAST_TASK) + 2, HG_WAVE_TASKS);
    w->scratch = calloc((size_t)w->num_threads, sizeof *w->scratch);
    w->tasks = malloc((size_t)tasks * sizeof *w->tasks);
    w->hubs = malloc((size_t)(chunks + 1) * sizeof *w->hubs);
    w->memory = aligned_alloc(64, (size_t)(each * w->num_threads));
    w->partial = malloc((size_t)((chunks + 2) * w->partial_width * w->size));
    if (!w->scratch || !w->tasks || !w->hubs || !w->memory || !w->partial)
        return -1;
    for (int k = 0; k < 2; k++)
        w->between[k] = w->partial + (chunks + k) * w->partial_width * w->size;
    memset(w->memory, 0, (size_t)(each * w->num_threads));
    for (int t = 0; t < w->num_threads; t++) {
        hg_attention_scratch *s = &w->scratch[t];
        carve(a, w->size, w->memory + t * each, s);
        s->table = table;
        s->keys = hg_round_keys_of(a->key);
    }
    return 0;
}

static inline void end_walk(hg_walk *w)
{
    free(w->scratch);
    free(w->tasks);
    free(w->hubs);
    free(w->memory);
    free(w->partial);
}

/* Fills in the tasks of the next wave, of at most (about) this many edges; returns 0 when there are none. */
static inline int next_wave(hg_walk *w, int64_t edges)
{
    const hg_attention_args *a = w->a;
    const int64_t *indptr = a->indptr, stop = hg_least(w->edge + edges, indptr[a->num_rows] + 1);
    int64_t large = 0;
    w->num_tasks = w->num_chunks = w->num_hubs = 0;
    w->number ^= 1;
    w->first_edge = w->edge;
    while (w->row < a->num_rows && w->num_tasks < w->most_tasks && w->edge < stop) {
        const int64_t i = w->row, end = indptr[i + 1];
        if (end - indptr[i] > HG_HUB_EDGES) {
            if (w->num_chunks == HG_WAVE_CHUNKS)
                break;
            const int64_t last = w->edge + HG_HUB_EDGES < end ? w->edge + HG_HUB_EDGES : end;
            if (w->num_hubs == 0 || w->hubs[w->num_hubs - 1].row != i)
                w->hubs[w->num_hubs++] = (hg_hub){i, w->num_chunks, 0, w->edge == indptr[i], 0};
            w->hubs[w->num_hubs - 1].num_chunks++;
            w->hubs[w->num_hubs - 1].ends = last == end;
            w->tasks[w->num_tasks++] = (hg_task){i, i + 1, w->edge, last, w->num_chunks++};
            w->edge = last;
            w->row += last == end;
            continue;
        }
        int64_t cost = w->part ? hg_least((stop - w->edge) / w->part, HG_TASK) : HG_TASK;
        cost = cost < HG_LEAST_TASK ? HG_LEAST_TASK : cost;
        int64_t last = i + hg_row_of_cost(indptr + i, a->num_rows - i, HG_ROW_COST, cost);
        if (last > i + 1 && indptr[last] - indptr[last - 1] > HG_HUB_EDGES)
            last--;                     /* only the last row can be a hub */
        hg_task *task = &w->tasks[w->num_tasks++];
        if (w->part && indptr[last] - indptr[i] > 2 * HG_TASK) {
            *task = w->tasks[large];
            task = &w->tasks[large++];
        }
        *task = (hg_task){i, last, indptr[i], indptr[last], -1};
        w->row = last;
        w->edge = indptr[last];
    }
    return w->num_tasks > 0;
}

/* Where what returns over each edge is added. */
static inline const int32_t *returns(const hg_attention_args *a)
{
    return a->returns ? a->returns : a->indices;
}

/* Sorts the edges [first, last) stably: those of bucket b, counted from first, are order[start[b] .. start[b + 1]). A bucket
 * takes groups of 1 << shift columns. */
static inline void sort_edges(const hg_attention_args *a, int64_t first, int64_t last, int32_t *order, int32_t *start,
                              int buckets, int shift)
{
    const int32_t mask = buckets - 1, *to = returns(a);
    int32_t at[HG_BUCKETS + 1];
    memset(at, 0, (size_t)(buckets + 1) * sizeof *at);
    for (int64_t e = first; e < last; e++)
        at[((to[e] >> shift) & mask) + 1]++;
    for (int b = 0; b < buckets; b++)
        at[b + 1] += at[b];
    memcpy(start, at, (size_t)(buckets + 1) * sizeof *at);
    for (int64_t e = first; e < last; e++)
        order[at[(to[e] >> shift) & mask]++] = (int32_t)(e - first);
}

#endif
