/* Who does which edges: the scheduling of attention over threads, and the scatter of its backward pass.
 *
 * The edges are cut, in their order, into tasks of about HG_TASK edges: whole rows, or chunks of HG_HUB_EDGES edges of
 * a hub, whose partial results are merged in order afterwards. Tasks are taken as threads become free, in waves. The last
 * tasks of a wave are small: no thread waits long for another. No result depends on how rows are cut into tasks.
 *
 * Backwards each edge also adds to a row of ga_dst that any thread may want (a scatter). A wave's gradients of logits
 * go to a buffer first, and its edges are sorted into buckets of columns, HG_SORTED at a time; when the wave is through,
 * each bucket is added by one thread, one sorted piece after another. So every element of ga_dst is summed in the order of
 * the edges, whatever the number of threads; a single thread adds at once, to the same bits. (Private copies of ga_dst per
 * thread, added up at the end, would cost threads * columns * H elements, cleared and added for every block: with
 * blocks of few edges per column that is more than the rows themselves; and their number would bound that of the
 * threads, or change the result.) A thread has eight buckets, of groups of columns that fill a cache line. Pieces are larger
 * than tasks: each bucket looks at each of them, and more of them would be almost empty.
 */
#include <omp.h>

#include "attention_walk.h"

#define HG_WAVE_EDGES 16384     /* per thread, backwards: (4 H + 4) bytes each of a wave's buffers in float32 */
#define HG_LEAST_WAVE 131072
#define HG_SORTED 8192
#define HG_PARTS 2              /* a task has at most 1 / (2 threads) of what is left of its wave */

/* y, maximum and denominator of the stored rows, taking in the edges of this block. Returns 0, or -1: no memory. */
HG_EXPORT int hg_attend_forward(int path, int num_threads, const hg_attention_args *a)
{
    hg_walk walk, *w = &walk;
    const int failed = begin_walk(w, path, num_threads, a, 2);
    w->part = w->num_threads > 1 ? HG_PARTS * w->num_threads : 0;
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

/* gz and ga_src of the stored rows, ga_dst of the columns. Returns 0, or -1: no memory. */
HG_EXPORT int hg_attend_backward(int path, int num_threads, const hg_attention_args *a)
{
    hg_walk walk, *w = &walk;
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0];
    int failed = begin_walk(w, path, num_threads, a, 1), buckets = w->num_threads == 1 ? 0 : 4, shift = HG_GROUP;
    while (buckets && buckets < 8 * w->num_threads && buckets < HG_BUCKETS)
        buckets *= 2;
    for (int64_t heads = a->heads; heads > 1 && shift; heads /= 2)
        shift--;
    w->part = buckets ? HG_PARTS * w->num_threads : 0;
    /* A wave may exceed its limit by one task: a row short of a hub. */
    const int64_t wave = (int64_t)HG_WAVE_EDGES * w->num_threads;
    const int64_t limit = !buckets ? 1 : wave < HG_LEAST_WAVE ? HG_LEAST_WAVE : wave;
    const int64_t held = hg_least(limit + 2 * HG_HUB_EDGES, num_edges), most_pieces = held / HG_SORTED + 1;
    const int64_t start_bytes = rounded(most_pieces * (buckets + 1) * 4), order_bytes = rounded(held * 4);
    static _Thread_local hg_memory kept;    /* as large as the largest wave */
    char *memory = hg_kept(&kept, start_bytes + order_bytes + held * a->heads * w->size);
    int32_t *start = (int32_t *)memory, *order = (int32_t *)(memory + start_bytes);
    char *buffer = memory + start_bytes + order_bytes;
    failed = failed || !memory ? -1 : 0;
    while (!failed && next_wave(w, limit)) {
        const int64_t base = w->first_edge, stride = a->heads;
        const int64_t pieces = buckets ? (w->edge - base + HG_SORTED - 1) / HG_SORTED : 0;
        /* Element e of the gradients, counted as the block's edges are. */
        void *gradient = buffer - base * stride * w->size;
        #pragma omp parallel num_threads(w->num_threads)
        {
            hg_attention_scratch *s = &w->scratch[omp_get_thread_num()];
            #pragma omp for schedule(dynamic, 1) nowait
            for (int64_t k = 0; k < pieces; k++)
                sort_edges(a, base + k * HG_SORTED, hg_least(base + (k + 1) * HG_SORTED, w->edge), order + k * HG_SORTED,
                           start + k * (buckets + 1), buckets, shift);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < w->num_tasks; k++) {
                const hg_task *task = &w->tasks[k];
                backward_task(w, s, task, gradient, stride);
                if (!buckets)
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
                for (int64_t k = 0; k < pieces; k++) {
                    const int32_t *from = start + k * (buckets + 1) + b;
                    scatter(a, gradient, stride, base + k * HG_SORTED, order + k * HG_SORTED + from[0], from[1] - from[0]);
                }
        }
    }
    end_walk(w);
    return failed;
}
