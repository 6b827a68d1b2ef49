/* Who does which edges: the scheduling of attention over threads, and the scatter of its backward pass.
 *
 * The edges are cut, in their order, into tasks of about HG_TASK edges: whole rows, or chunks of HG_HUB_EDGES edges of
 * a hub, whose partial results are merged in order afterwards. Tasks are taken as threads become free, in waves.
 *
 * Backwards each edge also adds to a row of ga_dst that any thread may want (a scatter). A wave's gradients of logits
 * go to a buffer first, and each task sorts its edges into buckets of columns; when the wave is through,
 * each bucket is added by one thread, task after task. So every element of ga_dst is summed in the order of the edges,
 * whatever the number of threads; a single thread adds at once, to the same bits. (Private copies of ga_dst per
 * thread, added up at the end, would cost threads * columns * H elements, cleared and added for every block: with
 * blocks of few edges per column that is more than the rows themselves; and their number would bound that of the
 * threads, or change the result.) Few buckets are faster than many, so there are four for each thread; waves of 32, 64 or 256 Ki edges per thread are alike.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "table.h"

#define HG_TASK 1024            /* edges; at width 256 a task is 1 MiB of reads */
#define HG_WAVE_TASKS 4096
#define HG_WAVE_EDGES 65536     /* per thread, backwards: (4 H + 4) bytes each of a wave's buffers in float32 */
#define HG_BUCKETS 512          /* at most; each takes every so many-th group of 16 columns: none has all the work */
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
    int64_t row, edge;                  /* where the next wave starts */
    int64_t size;                       /* bytes of an element */
    int64_t partial_width;
    int num_threads, number;            /* number: of the wave, modulo 2 */
    /* Backwards: the sums of a complete block's hub that a wave leaves unfinished. A wave continues those at its own number
     * and leaves its own at the other: one hub may end and another begin in it. */
    char *between[2];
} hg_walk;

static int64_t rounded(int64_t bytes)
{
    return (bytes + 127) / 64 * 64;     /* a whole register may be read and written beyond the end */
}

/* Cuts `at` into one thread's pieces; returns the bytes used. With s NULL it only measures. */
static int64_t carve(const hg_attention_args *a, int64_t size, char *at, hg_attention_scratch *s)
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
    if (a->row_ids) {
        if (s)
            s->words = (uint32_t *)(at + used);
        used += rounded((groups + 8) * 16);
    }
    return used;
}

/* Returns 0, or -1 if there is no memory. */
static int begin_walk(hg_walk *w, int path, int num_threads, const hg_attention_args *a, int64_t extra)
{
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0];
    const hg_kernels *table = hg_table(path);
    memset(w, 0, sizeof *w);
    w->a = a;
    w->kernels = &table->attention[a->type];
    w->size = hg_size_of(a->type);
    w->edge = a->indptr[0];
    w->partial_width = a->heads * (a->head_width + extra);
    w->num_threads = num_edges * a->heads * a->head_width < HG_SMALL_BLOCK ? 1 : num_threads;
    const int64_t each = carve(a, w->size, NULL, NULL);
    const int64_t most_chunks = num_edges / HG_HUB_EDGES * 2;
    const int64_t chunks = most_chunks < HG_WAVE_CHUNKS ? most_chunks : HG_WAVE_CHUNKS;
    const int64_t most = num_edges + HG_ROW_COST * a->num_rows;
    const int64_t tasks = 2 * (most / HG_TASK) + 2 < HG_WAVE_TASKS ? 2 * (most / HG_TASK) + 2 : HG_WAVE_TASKS;
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

static void end_walk(hg_walk *w)
{
    free(w->scratch);
    free(w->tasks);
    free(w->hubs);
    free(w->memory);
    free(w->partial);
}

/* Fills in the tasks of the next wave, of at most (about) this many edges; returns 0 when there are none. */
static int next_wave(hg_walk *w, int64_t edges)
{
    const hg_attention_args *a = w->a;
    const int64_t *indptr = a->indptr, stop = w->edge + edges;
    w->num_tasks = w->num_chunks = w->num_hubs = 0;
    w->number ^= 1;
    while (w->row < a->num_rows && w->num_tasks < HG_WAVE_TASKS && w->edge < stop) {
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
        int64_t last = i + hg_row_of_cost(indptr + i, a->num_rows - i, HG_ROW_COST, HG_TASK);
        if (last > i + 1 && indptr[last] - indptr[last - 1] > HG_HUB_EDGES)
            last--;                     /* only the last row can be a hub */
        w->tasks[w->num_tasks++] = (hg_task){i, last, indptr[i], indptr[last], -1};
        w->row = last;
        w->edge = indptr[last];
    }
    return w->num_tasks > 0;
}

/* y, maximum and denominator of the stored rows, taking in the edges of this block. Returns 0, or -1: no memory. */
HG_EXPORT int hg_attend_forward(int path, int num_threads, const hg_attention_args *a)
{
    hg_walk walk, *w = &walk;
    const int failed = begin_walk(w, path, num_threads, a, 2);
    while (!failed && next_wave(w, INT64_MAX / 2)) {
        #pragma omp parallel num_threads(w->num_threads)
        {
            hg_attention_scratch *s = &w->scratch[omp_get_thread_num()];
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_tasks; k++) {
                const hg_task *task = &w->tasks[k];
                if (task->chunk < 0)
                    w->kernels->forward_rows(a, s, task->first_row, task->last_row);
                else
                    w->kernels->forward_chunk(a, s, task->first_row, task->first_edge, task->last_edge,
                                              w->partial + task->chunk * w->partial_width * w->size);
            }
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_hubs; k++)
                w->kernels->forward_merge(a, w->hubs[k].row,
                                          w->partial + w->hubs[k].first_chunk * w->partial_width * w->size,
                                          w->hubs[k].num_chunks, w->hubs[k].begins, w->hubs[k].ends);
        }
    }
    end_walk(w);
    return failed;
}

static void backward_task(hg_walk *w, hg_attention_scratch *s, const hg_task *task, void *gradient, int64_t stride)
{
    if (task->chunk < 0)
        w->kernels->backward_rows(w->a, s, task->first_row, task->last_row, gradient, stride);
    else
        w->kernels->backward_chunk(w->a, s, task->first_row, task->first_edge, task->last_edge,
                                   w->partial + task->chunk * w->partial_width * w->size, gradient, stride);
}

/* Where what returns over each edge is added. */
static inline const int32_t *returns(const hg_attention_args *a)
{
    return a->returns ? a->returns : a->indices;
}

/* ga_dst[returns[e]] += gradient[e] for the listed edges, or (order NULL) for num edges from `first` on. */
#define HG_SCATTER(type)                                                                                               \
    static inline __attribute__((always_inline)) void scatter_##type(                                                  \
        const hg_attention_args *a, const type *gradient, int64_t stride, int64_t first, const int32_t *order,         \
        int64_t num, const int64_t heads)                                                                              \
    {                                                                                                                  \
        const int32_t *restrict to = returns(a);                                                                       \
        for (int64_t k = 0; k < num; k++) {                                                                            \
            const int64_t e = first + (order ? order[k] : k);                                                          \
            type *restrict target = (type *)a->ga_dst + to[e] * a->ga_dst_stride;                                      \
            const type *restrict from = gradient + e * stride;                                                         \
            for (int64_t h = 0; h < heads; h++)                                                                        \
                target[h] += from[h];                                                                                  \
        }                                                                                                              \
    }
HG_SCATTER(float)
HG_SCATTER(double)

static void scatter(const hg_attention_args *a, const void *gradient, int64_t stride, int64_t first,
                    const int32_t *order, int64_t num)
{
    if (a->type == HG_F64)
        scatter_double(a, gradient, stride, first, order, num, a->heads);
    else if (a->heads == 1)
        scatter_float(a, gradient, stride, first, order, num, 1);
    else if (a->heads == 4)
        scatter_float(a, gradient, stride, first, order, num, 4);
    else if (a->heads == 8)
        scatter_float(a, gradient, stride, first, order, num, 8);
    else
        scatter_float(a, gradient, stride, first, order, num, a->heads);
}

/* Sorts the edges [first, last) stably: those of bucket b, counted from first, are order[start[b] .. start[b + 1]). */
static void sort_edges(const hg_attention_args *a, int64_t first, int64_t last, int32_t *order, int32_t *start,
                       int buckets)
{
    const int32_t mask = buckets - 1, *to = returns(a);
    int32_t at[HG_BUCKETS + 1];
    memset(at, 0, (size_t)(buckets + 1) * sizeof *at);
    for (int64_t e = first; e < last; e++)
        at[((to[e] >> 4) & mask) + 1]++;
    for (int b = 0; b < buckets; b++)
        at[b + 1] += at[b];
    memcpy(start, at, (size_t)(buckets + 1) * sizeof *at);
    for (int64_t e = first; e < last; e++)
        order[at[(to[e] >> 4) & mask]++] = (int32_t)(e - first);
}

/* gz and ga_src of the stored rows, ga_dst of the columns, g_edge_term of the edges. Returns 0, or -1: no memory. */
HG_EXPORT int hg_attend_backward(int path, int num_threads, const hg_attention_args *a)
{
    hg_walk walk, *w = &walk;
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0];
    int failed = begin_walk(w, path, num_threads, a, 1), buckets = w->num_threads == 1 ? 0 : 4;
    while (buckets && buckets < 4 * w->num_threads && buckets < HG_BUCKETS)
        buckets *= 2;
    /* A wave may exceed its limit by one task: a row short of a hub. */
    int64_t limit = w->num_threads == 1 ? 1 : (int64_t)HG_WAVE_EDGES * w->num_threads, held = limit + 2 * HG_HUB_EDGES;
    held = held < num_edges ? held : num_edges;
    const int64_t start_bytes = (int64_t)HG_WAVE_TASKS * (buckets + 1) * 4, order_bytes = rounded(held * 4);
    static _Thread_local hg_memory kept;    /* as large as the largest wave */
    char *memory = hg_kept(&kept, start_bytes + order_bytes + (a->g_edge_term ? 0 : held * a->heads * w->size));
    int32_t *start = (int32_t *)memory, *order = (int32_t *)(memory + start_bytes);
    char *buffer = memory + start_bytes + order_bytes;
    failed = failed || !memory ? -1 : 0;
    while (!failed && next_wave(w, limit)) {
        const int64_t base = w->tasks[0].first_edge, stride = a->g_edge_term ? a->g_edge_term_stride : a->heads;
        /* Element e of the gradients, counted as the block's edges are. */
        void *gradient = a->g_edge_term ? a->g_edge_term : (void *)(buffer - base * stride * w->size);
        #pragma omp parallel num_threads(w->num_threads)
        {
            hg_attention_scratch *s = &w->scratch[omp_get_thread_num()];
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_tasks; k++) {
                const hg_task *task = &w->tasks[k];
                backward_task(w, s, task, gradient, stride);
                if (buckets)
                    sort_edges(a, task->first_edge, task->last_edge, order + (task->first_edge - base),
                               start + k * (buckets + 1), buckets);
                else
                    scatter(a, gradient, stride, task->first_edge, NULL, task->last_edge - task->first_edge);
            }
            #pragma omp for schedule(dynamic, 1) nowait
            for (int64_t k = 0; k < w->num_hubs; k++)
                w->kernels->backward_merge(a, w->hubs[k].row,
                                           w->partial + w->hubs[k].first_chunk * w->partial_width * w->size,
                                           w->hubs[k].num_chunks, w->hubs[k].begins ? NULL : w->between[w->number],
                                           w->hubs[k].ends ? NULL : w->between[!w->number]);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t b = 0; b < buckets; b++)
                for (int64_t k = 0; k < w->num_tasks; k++) {
                    const int32_t *from = start + k * (buckets + 1) + b;
                    scatter(a, gradient, stride, w->tasks[k].first_edge,
                            order + (w->tasks[k].first_edge - base) + from[0], from[1] - from[0]);
                }
        }
    }
    end_walk(w);
    return failed;
}
