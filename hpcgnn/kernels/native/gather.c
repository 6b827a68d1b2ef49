/* Who sums which rows: the scheduling of gather over threads.
 *
 * Rows are shared out by edges + HG_ROW_COST * rows, found by bisecting indptr, in many more shares than threads, taken
 * as threads become free. Hubs would make one share as long as all others together, so they come first, in chunks of a
 * fixed number of edges that all threads share.
 */
#include "table.h"

#define HG_GATHER_SHARE 8192           /* edges per share: 32 KiB of indices, re-read from cache for each panel */
#define HG_LEAST_GATHER_SHARE 256
#define HG_EXTREME_SHARE 4096

/* The first multiple of HG_HUB_EDGES among the numbers of the edges from row i on. Chunk k of a hub has the k-th from there,
 * and only the last chunk may have none. As a hub has two chunks or more, no two hubs have sums at the same place if each
 * one's begin at twice this number. */
static int64_t first_multiple(const hg_gather_args *a, int64_t i)
{
    return (a->indptr[i] - a->indptr[0] + HG_HUB_EDGES - 1) / HG_HUB_EDGES;
}

static int64_t sums_size(const hg_gather_args *a)
{
    return a->width * (a->x_type == HG_F64 ? 8 : 4);
}

int hg_hub_sums(const hg_gather_args *a, hg_memory *kept, char **sums)
{
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0];
    *sums = num_edges > HG_HUB_EDGES ? hg_kept(kept, (2 * num_edges / HG_HUB_EDGES + 4) * sums_size(a)) : NULL;
    return num_edges > HG_HUB_EDGES && !*sums ? -1 : 0;
}

void hg_sum_hubs(int path, const hg_gather_args *a, char *sums)
{
    const int64_t begin = a->indptr[0], num_edges = a->indptr[a->num_rows] - begin;
    if (!sums)
        return;
    #pragma omp for schedule(dynamic, 1)
    for (int64_t at = 0; at < num_edges; at += HG_HUB_EDGES) {
        const int64_t i = hg_row_of_cost(a->indptr, a->num_rows, 0, at + 1) - 1, end = a->indptr[i + 1];
        const int64_t multiple = first_multiple(a, i), last = begin + at + HG_HUB_EDGES >= end;
        int64_t chunk = at / HG_HUB_EDGES - multiple, e = a->indptr[i] + chunk * HG_HUB_EDGES;
        for (int more = end - a->indptr[i] > HG_HUB_EDGES; more; more = last && e < end, chunk++) {
            const int64_t first = e;
            e = hg_least(e + HG_HUB_EDGES, end);
            hg_table(path)->gather[a->x_type].chunk(a, first, e, sums + (2 * multiple + chunk) * sums_size(a));
        }
    }
}

void hg_gather_rows(int path, const hg_gather_args *a, char *sums, int64_t first, int64_t last)
{
    const hg_gather_kernels *kernels = &hg_table(path)->gather[a->x_type];
    kernels->rows(a, first, last);
    for (int64_t i = first; sums && i < last; i++) {
        const int64_t num = a->indptr[i + 1] - a->indptr[i];
        if (num > HG_HUB_EDGES)
            kernels->finish(a, i, sums + 2 * first_multiple(a, i) * sums_size(a), (num + HG_HUB_EDGES - 1) / HG_HUB_EDGES);
    }
}

static int64_t cost_of(const int64_t *indptr, int64_t num)
{
    return indptr[num] - indptr[0] + HG_ROW_COST * num;
}

void hg_share_rows(int path, int num_threads, const hg_gather_args *a, char *sums, int64_t first, int64_t num)
{
    const int64_t *indptr = a->indptr + first, cost = cost_of(indptr, num), fair = cost / (8 * num_threads);
    const int64_t share = fair < HG_LEAST_GATHER_SHARE ? HG_LEAST_GATHER_SHARE : hg_least(fair, HG_GATHER_SHARE);
    #pragma omp for schedule(dynamic, 1) nowait
    for (int64_t s = 0; s < (cost + share - 1) / share; s++)
        hg_gather_rows(path, a, sums, first + hg_row_of_cost(indptr, num, HG_ROW_COST, s * share),
                       first + hg_row_of_cost(indptr, num, HG_ROW_COST, (s + 1) * share));
}

/* Returns 0, or -1 if there is no memory for the hubs' sums. */
HG_EXPORT int hg_gather(int path, int num_threads, const hg_gather_args *a)
{
    static _Thread_local hg_memory kept;
    char *sums;
    if (a->num_rows == 0 || a->width == 0)
        return 0;
    if (hg_hub_sums(a, &kept, &sums))
        return -1;
    #pragma omp parallel num_threads(num_threads) if (cost_of(a->indptr, a->num_rows) > HG_LEAST_GATHER_SHARE)
    {
        hg_sum_hubs(path, a, sums);
        hg_share_rows(path, num_threads, a, sums, 0, a->num_rows);
    }
    return 0;
}

/* Rows of a block by some function. A row is never shared out, so a hub is one thread's work. */
static void share_extremes(int num_threads, const hg_extreme_args *a, void (*rows)(const hg_extreme_args *, int64_t, int64_t))
{
    const int64_t shares = a->width == 0 ? 0 : (cost_of(a->indptr, a->num_rows) + HG_EXTREME_SHARE - 1) / HG_EXTREME_SHARE;
    #pragma omp parallel for schedule(dynamic, 1) num_threads(shares > 1 ? num_threads : 1)
    for (int64_t s = 0; s < shares; s++)
        rows(a, hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, s * HG_EXTREME_SHARE),
             hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, (s + 1) * HG_EXTREME_SHARE));
}

HG_EXPORT void hg_gather_largest(int path, int num_threads, const hg_extreme_args *a)
{
    share_extremes(num_threads, a, hg_table(path)->of[a->type]->largest);
}

HG_EXPORT void hg_largest_gradient(int path, int num_threads, const hg_extreme_args *a)
{
    share_extremes(num_threads, a, hg_table(path)->of[a->type]->largest_gradient);
}

HG_EXPORT void hg_edge_rows(int num_threads, int32_t *out, const int64_t *indptr, const int32_t *rows, int64_t num_rows)
{
    #pragma omp parallel for num_threads(num_threads) if (cost_of(indptr, num_rows) > HG_LEAST_GATHER_SHARE)
    for (int64_t i = 0; i < num_rows; i++)
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
            out[e] = rows ? rows[i] : (int32_t)i;
}
