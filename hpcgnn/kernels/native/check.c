/* One pass over a block's structure, so that the other kernels need not check an index ever again. */
#include "hg.h"

/* HG_VALID, or what is wrong and where it is first seen. */
HG_EXPORT int hg_check_block(int num_threads, const int64_t *indptr, int64_t num_stored, const int32_t *indices,
                             int64_t num_indices, const int32_t *rows, int64_t num_rows, int64_t num_sources,
                             int64_t *position)
{
    *position = 0;
    if (indptr[0] < 0)
        return HG_INDPTR_START;
    for (int64_t i = 0; i < num_stored; i++)
        if (indptr[i + 1] < indptr[i])
            return *position = i, HG_INDPTR_ORDER;
    if (indptr[num_stored] > num_indices)
        return *position = num_stored, HG_INDPTR_END;
    for (int64_t i = 0; rows && i < num_stored; i++) {
        if (rows[i] < 0 || rows[i] >= num_rows)
            return *position = i, HG_ROW_RANGE;
        if (i > 0 && rows[i] <= rows[i - 1])
            return *position = i, HG_ROW_ORDER;
    }
    int64_t first_bad = INT64_MAX;
    #pragma omp parallel for schedule(static) num_threads(num_threads) reduction(min : first_bad)
    for (int64_t block = indptr[0]; block < indptr[num_stored]; block += 4096) {
        const int64_t end = block + 4096 < indptr[num_stored] ? block + 4096 : indptr[num_stored];
        uint32_t bad = 0;       /* no branch inside: this loop vectorises */
        for (int64_t e = block; e < end; e++)
            bad |= (uint32_t)((int64_t)indices[e] >= num_sources) | (uint32_t)(indices[e] < 0);
        for (int64_t e = block; bad && e < end; e++)
            if ((indices[e] < 0 || indices[e] >= num_sources) && e < first_bad)
                first_bad = e;
    }
    if (first_bad != INT64_MAX)
        return *position = first_bad, HG_INDEX_RANGE;
    return HG_VALID;
}
