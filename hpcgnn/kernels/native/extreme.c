/* Who takes which rows of the largest-of-neighbours kernel: shares of about equal numbers of edges, taken as threads
 * become free. A row is never shared out, so a hub is one thread's work. */
#include "table.h"

#define HG_EXTREME_SHARE 4096

HG_EXPORT void hg_gather_largest(int path, int num_threads, const hg_extreme_args *a)
{
    if (a->num_rows == 0 || a->width == 0)
        return;
    const int64_t cost = a->indptr[a->num_rows] - a->indptr[0] + HG_ROW_COST * a->num_rows;
    const int64_t shares = (cost + HG_EXTREME_SHARE - 1) / HG_EXTREME_SHARE;
    if (shares == 1)
        num_threads = 1;
    #pragma omp parallel for schedule(dynamic, 1) num_threads(num_threads)
    for (int64_t s = 0; s < shares; s++)
        hg_table(path)->of[a->type]->largest(
            a, hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, s * HG_EXTREME_SHARE),
            hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, (s + 1) * HG_EXTREME_SHARE));
}
