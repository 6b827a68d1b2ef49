/* The backward pass of attention whose scores are made of whole rows (score_rows.h), at the owner of the destinations.
 *
 * Forwards it is attention.c's. Backwards rows are destinations as well, so each edge returns a whole row to its source, which
 * any thread may want. As there, a wave keeps two numbers per edge and head, and its buckets of columns are added in the order
 * of the edges: what returns is made then, from the rows. A single thread makes it at once, to the same bits. The gradient of
 * the attention vectors is summed by task, and then in the order of the tasks.
 */
#include <omp.h>

#include "attention_walk.h"

#define HG_SCORED_EDGES 16384   /* of a wave, per thread: (8 H + 8) bytes each in float32 */
#define HG_SCORE_TASKS 8        /* of a wave, per thread, where each has a sum for the edges' weights */
#define HG_SCORE_COLUMNS 256    /* of these sums, added up at a time */

/* Adds the columns [from, to) of a task's sums to [g_attention (vectors) | g_weight]. */
static void add_sums(const hg_walk *w, const char *sums, int64_t vectors, int64_t from, int64_t to)
{
    const int64_t middle = from >= vectors ? from : hg_least(vectors, to);
    if (from < middle)
        w->kernels->score_add((char *)w->a->g_attention + from * w->size, sums + from * w->size, middle - from);
    if (middle < to)
        w->kernels->score_add((char *)w->a->g_weight + (middle - vectors) * w->size, sums + middle * w->size, to - middle);
}

static void score_task(hg_walk *w, hg_attention_scratch *s, const hg_task *task, const hg_score_edges *edges)
{
    if (task->chunk < 0)
        w->kernels->score_rows(w->a, s, task->first_row, task->last_row, edges);
    else
        w->kernels->score_chunk(w->a, s, task->first_row, task->first_edge, task->last_edge,
                                w->partial + task->chunk * w->partial_width * w->size, edges);
}

/* sums (the gradient of own rows), g_attention and ga_dst are added to; sums of a complete block are new. Returns 0, or -1: no
 * memory. */
HG_EXPORT int hg_score_backward(int path, int num_threads, const hg_attention_args *a)
{
    hg_walk walk, *w = &walk;
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0], width = a->heads * a->head_width;
    const int64_t extra = hg_own_width(a) / a->heads > a->head_width ? hg_own_width(a) / a->heads - a->head_width : 0;
    int failed = begin_walk(w, path, num_threads, a, extra), buckets = w->num_threads == 1 || !a->ga_dst ? 0 : 4;
    while (buckets && buckets < 4 * w->num_threads && buckets < HG_BUCKETS)
        buckets *= 2;
    const int64_t limit = w->num_threads == 1 ? 1 : buckets ? (int64_t)HG_SCORED_EDGES * w->num_threads : num_edges;
    const int64_t held = buckets ? hg_least(limit + 2 * HG_HUB_EDGES, num_edges) : 0;
    w->partial_width = hg_own_width(a);
    /* Columns of a task's sums: of g_attention, and of g_weight, which may be large. */
    const int64_t vectors = a->g_attention ? width : 0, all_sums = vectors + (a->g_weight ? a->weight_rows * a->weight_columns : 0);
    if (a->g_weight)
        w->most_tasks = hg_least(w->most_tasks, HG_SCORE_TASKS * w->num_threads);
    const int64_t shares = !all_sums ? 0 : w->num_threads == 1 ? 1 : w->most_tasks;
    const int64_t bytes[] = {HG_WAVE_TASKS * (buckets + 1) * 4, held * 4, held * 4, held * a->heads * w->size,
                             held * a->heads * w->size, shares * all_sums * w->size};
    int64_t all = 0;
    for (int k = 0; k < 6; k++)
        all += rounded(bytes[k]);
    static _Thread_local hg_memory kept;
    char *part[6] = {hg_kept(&kept, all)};
    failed = failed || !part[0] ? -1 : 0;
    for (int k = 1; k < 6; k++)
        part[k] = part[k - 1] + rounded(bytes[k - 1]);
    while (!failed && next_wave(w, limit)) {
        int32_t *start = (int32_t *)part[0], *order = (int32_t *)part[1];
        const int64_t base = w->tasks[0].first_edge;
        const hg_score_edges wave = {part[3], part[4], buckets ? (int32_t *)part[2] : NULL, base, NULL, NULL};
        #pragma omp parallel num_threads(w->num_threads)
        {
            hg_attention_scratch *s = &w->scratch[omp_get_thread_num()];
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_tasks; k++) {
                const hg_task *task = &w->tasks[k];
                hg_score_edges edges = wave;
                char *sums = part[5] + (shares > 1 ? k : 0) * all_sums * w->size;
                memset(sums, 0, (size_t)((shares ? all_sums : 0) * w->size));
                edges.g_attention = a->g_attention ? sums : NULL;
                edges.g_weight = a->g_weight ? sums + vectors * w->size : NULL;
                score_task(w, s, task, &edges);
                if (shares == 1)
                    add_sums(w, sums, vectors, 0, all_sums);
                if (buckets)
                    sort_edges(a, task->first_edge, task->last_edge, order + (task->first_edge - base),
                               start + k * (buckets + 1), buckets, HG_GROUP);
            }
            #pragma omp for schedule(dynamic, 1) nowait
            for (int64_t from = 0; from < (shares > 1 ? all_sums : 0); from += HG_SCORE_COLUMNS)
                for (int64_t k = 0; k < w->num_tasks; k++)
                    add_sums(w, part[5] + k * all_sums * w->size, vectors, from, hg_least(from + HG_SCORE_COLUMNS, all_sums));
            #pragma omp for schedule(dynamic, 1) nowait
            for (int64_t k = 0; k < w->num_hubs; k++)
                w->kernels->score_merge(a, w->hubs[k].row, w->partial + w->hubs[k].first_chunk * w->partial_width * w->size,
                                        w->hubs[k].num_chunks);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t b = 0; b < buckets; b++)
                for (int64_t k = 0; k < w->num_tasks; k++) {
                    const int32_t *from = start + k * (buckets + 1) + b;
                    const int64_t first = w->tasks[k].first_edge, at = first - base, numbers = at * a->heads * w->size;
                    w->kernels->score_return(a, s, part[3] + numbers, part[4] + numbers, wave.rows + at, 0, first,
                                             order + at + from[0], from[1] - from[0]);
                }
        }
    }
    end_walk(w);
    return failed;
}
