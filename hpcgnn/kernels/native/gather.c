/* Who sums which rows: the scheduling of gather over threads.
 *
 * Rows are shared out by edges + HG_ROW_COST * rows, found by bisecting indptr, in many more shares than threads, taken
 * as threads become free. Hubs would make one share as long as all others together, so they are done first, in
 * chunks of a fixed number of edges that all threads share.
 */
#include <stdlib.h>

#include "table.h"

#define HG_GATHER_SHARE 8192           /* edges per share: 32 KiB of indices, re-read from cache for each panel */
#define HG_LEAST_GATHER_SHARE 256
#define HG_EXTREME_SHARE 4096

typedef struct { int64_t row, first_chunk, num_chunks; } hg_hub;
typedef struct { int64_t first, last; } hg_edges;

/* The first hub that holds an edge >= edge, or -1. A hub, having more than HG_HUB_EDGES edges, contains an edge
 * `begin + k * HG_HUB_EDGES`; looking at those alone spares reading all of indptr. */
static int64_t next_hub(const hg_gather_args *a, int64_t *edge)
{
    const int64_t end = a->indptr[a->num_rows];
    for (; *edge < end; *edge += HG_HUB_EDGES) {
        int64_t low = 0, high = a->num_rows;    /* first row that ends after *edge */
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (a->indptr[middle + 1] <= *edge)
                low = middle + 1;
            else
                high = middle;
        }
        if (a->indptr[low + 1] - a->indptr[low] > HG_HUB_EDGES) {
            while (*edge < a->indptr[low + 1])
                *edge += HG_HUB_EDGES;
            return low;
        }
    }
    return -1;
}

static int gather_hubs(const hg_gather_args *a, const hg_gather_kernels *kernels, int num_threads)
{
    const int64_t size = a->x_type == HG_F64 ? 8 : 4;
    int64_t edge = a->indptr[0] + HG_HUB_EDGES, row = next_hub(a, &edge);
    while (row >= 0) {
        hg_hub hubs[HG_WAVE_CHUNKS];
        int64_t num_hubs = 0, num_chunks = 0;
        while (row >= 0 && num_chunks < HG_WAVE_CHUNKS) {
            int64_t chunks = (a->indptr[row + 1] - a->indptr[row] + HG_HUB_EDGES - 1) / HG_HUB_EDGES;
            hubs[num_hubs++] = (hg_hub){row, num_chunks, chunks};
            num_chunks += chunks;
            row = next_hub(a, &edge);
        }
        hg_edges *edges = malloc((size_t)num_chunks * sizeof *edges);
        char *partial = malloc((size_t)(num_chunks * a->width * size));
        if (!edges || !partial) {
            free(edges);
            free(partial);
            return -1;
        }
        for (int64_t h = 0; h < num_hubs; h++)
            for (int64_t k = 0; k < hubs[h].num_chunks; k++) {
                int64_t first = a->indptr[hubs[h].row] + k * HG_HUB_EDGES, end = a->indptr[hubs[h].row + 1];
                edges[hubs[h].first_chunk + k] =
                    (hg_edges){first, first + HG_HUB_EDGES < end ? first + HG_HUB_EDGES : end};
            }
        #pragma omp parallel num_threads(num_threads)
        {
            #pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < num_chunks; k++)
                kernels->chunk(a, edges[k].first, edges[k].last, partial + k * a->width * size);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t h = 0; h < num_hubs; h++)
                kernels->finish(a, hubs[h].row, partial + hubs[h].first_chunk * a->width * size, hubs[h].num_chunks);
        }
        free(edges);
        free(partial);
    }
    return 0;
}

/* Returns 0, or -1 if memory for the hubs' partial sums ran out. */
HG_EXPORT int hg_gather(int path, int num_threads, const hg_gather_args *a)
{
    const hg_gather_kernels *kernels = &hg_table(path)->gather[a->x_type];
    if (a->num_rows == 0 || a->width == 0)
        return 0;
    const int64_t num_edges = a->indptr[a->num_rows] - a->indptr[0];
    if (num_edges > HG_HUB_EDGES && gather_hubs(a, kernels, num_threads))
        return -1;

    const int64_t cost = num_edges + HG_ROW_COST * a->num_rows;
    int64_t share = cost / (8 * num_threads);
    share = share < HG_LEAST_GATHER_SHARE ? HG_LEAST_GATHER_SHARE : share > HG_GATHER_SHARE ? HG_GATHER_SHARE : share;
    const int64_t shares = (cost + share - 1) / share;
    #pragma omp parallel for schedule(dynamic, 1) num_threads(num_threads) if (shares > 1)
    for (int64_t s = 0; s < shares; s++)
        kernels->rows(a, hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, s * share),
                      hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, (s + 1) * share));
    return 0;
}

/* The largest of neighbours. A row is never shared out, so a hub is one thread's work. */
HG_EXPORT void hg_gather_largest(int path, int num_threads, const hg_extreme_args *a)
{
    const int64_t cost = a->indptr[a->num_rows] - a->indptr[0] + HG_ROW_COST * a->num_rows;
    const int64_t shares = a->width == 0 ? 0 : (cost + HG_EXTREME_SHARE - 1) / HG_EXTREME_SHARE;
    #pragma omp parallel for schedule(dynamic, 1) num_threads(shares > 1 ? num_threads : 1)
    for (int64_t s = 0; s < shares; s++)
        hg_table(path)->of[a->type]->largest(
            a, hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, s * HG_EXTREME_SHARE),
            hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, (s + 1) * HG_EXTREME_SHARE));
}
