/* Who makes which messages (messages.h). Both directions are made where the destinations are, by the tasks and waves of
 * attention_walk.h.
 *
 * Backwards each edge returns a row to its source, which any thread may want. So a wave sorts its edges into buckets of
 * columns, and each bucket makes its messages anew, in the order of the edges: nothing per edge is kept but two numbers. A
 * single thread returns at once, to the same bits. The gradient of the edges' map is summed by task, and then in their order.
 */
#include <omp.h>

#include "attention_walk.h"

#define HG_MESSAGE_EDGES 8192   /* of a wave, per thread */
#define HG_MESSAGE_TASKS 8      /* of a wave, per thread: each has a sum for the edges' map */

static hg_attention_args shape_of(const hg_message_args *a, int64_t numbers)
{
    return (hg_attention_args){.indptr = a->indptr, .indices = a->indices, .rows = a->rows, .returns = a->returns,
                               .num_rows = a->num_rows, .heads = 1, .head_width = numbers, .type = a->type};
}

/* y, and of moments counts and numbers, are continued. Returns 0, or -1: no memory. */
HG_EXPORT int hg_message_forward(int path, int num_threads, const hg_message_args *a)
{
    const hg_attention_args shape = shape_of(a, a->reduce == HG_REDUCE_SUM ? a->width : 6 * a->width + 1);
    const hg_message_kernels *kernels = &hg_table(path)->of[a->type]->messages;
    hg_walk walk, *w = &walk;
    const int failed = begin_walk(w, path, num_threads, &shape, 0);
    while (!failed && next_wave(w, a->indptr[a->num_rows] + 1)) {
        #pragma omp parallel num_threads(w->num_threads)
        {
            void *memory = w->scratch[omp_get_thread_num()].sums;
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_tasks; k++) {
                const hg_task *task = &w->tasks[k];
                if (task->chunk < 0)
                    kernels->rows(a, memory, task->first_row, task->last_row);
                else
                    kernels->chunk(a, memory, task->first_edge, task->last_edge,
                                   w->partial + task->chunk * w->partial_width * w->size);
            }
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_hubs; k++)
                kernels->merge(a, w->hubs[k].row, w->partial + w->hubs[k].first_chunk * w->partial_width * w->size,
                               w->hubs[k].num_chunks);
        }
    }
    end_walk(w);
    return failed;
}

/* back and g_map are added to. Returns 0, or -1: no memory. */
HG_EXPORT int hg_message_backward(int path, int num_threads, const hg_message_args *a)
{
    const hg_attention_args shape = shape_of(a, a->width);
    const hg_kernels *table = hg_table(path);
    const hg_message_kernels *kernels = &table->of[a->type]->messages;
    hg_walk walk, *w = &walk;
    int failed = begin_walk(w, path, num_threads, &shape, 0), buckets = w->num_threads == 1 || !a->back ? 0 : 4;
    while (buckets && buckets < 4 * w->num_threads && buckets < HG_BUCKETS)
        buckets *= 2;
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0], size = w->size;
    const int64_t limit = w->num_threads == 1 ? 1 : (int64_t)HG_MESSAGE_EDGES * w->num_threads;
    const int64_t held = w->num_threads > 1 ? hg_least(limit + 2 * HG_HUB_EDGES, num_edges) : 0;
    w->most_tasks = hg_least(w->most_tasks, HG_MESSAGE_TASKS * w->num_threads);
    const int64_t map = rounded(a->width * size) / size, levels = a->g_map ? a->depth + 1 : 0;    /* rows of its sums */
    const int64_t bytes[] = {w->most_tasks * (buckets + 1) * 4, held * 4, held * 4,
                             (w->num_threads == 1 ? 1 : w->most_tasks) * levels * map * size};
    static _Thread_local hg_memory kept;
    char *part[4] = {hg_kept(&kept, rounded(bytes[0]) + rounded(bytes[1]) + rounded(bytes[2]) + rounded(bytes[3]))};
    failed = failed || !part[0] ? -1 : 0;
    for (int k = 1; k < 4; k++)
        part[k] = part[k - 1] + rounded(bytes[k - 1]);
    while (!failed && next_wave(w, limit)) {
        int32_t *start = (int32_t *)part[0], *order = (int32_t *)part[1], *rows = held ? (int32_t *)part[2] : NULL;
        const int64_t base = w->tasks[0].first_edge;
        #pragma omp parallel num_threads(w->num_threads)
        {
            hg_attention_scratch *s = &w->scratch[omp_get_thread_num()];
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_tasks; k++) {
                const hg_task *task = &w->tasks[k];
                char *sums = levels ? part[3] + (w->num_threads == 1 ? 0 : k) * levels * map * size : NULL;
                if (sums)
                    memset(sums, 0, (size_t)(levels * map * size));
                kernels->task(a, s->sums, s->z, task->first_row, task->last_row, task->first_edge, task->last_edge,
                              rows ? rows + (task->first_edge - base) : NULL, sums, map);
                if (buckets)
                    sort_edges(&shape, task->first_edge, task->last_edge, order + (task->first_edge - base),
                               start + k * (buckets + 1), buckets, HG_GROUP);
            }
            #pragma omp for schedule(dynamic, 1) nowait
            for (int64_t level = 0; level < levels; level++)
                for (int64_t k = 0; k < (w->num_threads == 1 ? 1 : w->num_tasks); k++)
                    table->of[a->type]->attention.score_add((char *)a->g_map + level * a->width * size,
                                                        part[3] + (k * levels + level) * map * size, a->width);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t b = 0; b < buckets; b++)
                for (int64_t k = 0; k < w->num_tasks; k++) {
                    const int32_t *from = start + k * (buckets + 1) + b;
                    const int64_t first = w->tasks[k].first_edge, at = first - base;
                    kernels->back(a, s->sums, s->z, rows + at, first, order + at + from[0], from[1] - from[0]);
                }
        }
    }
    end_walk(w);
    return failed;
}
