/* Edge dropout: the block of the edges that are left of a block. Several threads go over its rows twice, to count and then to
 * copy, and draw both times: a draw costs less than memory for what it said. One thread does both at once.
 *
 * The word of an edge belongs to (destination, source, how many equal edges come before), as in attention_dropout.h. Where an
 * edge and its reverse are one edge, the larger id stands for the destination. An edge of a node to itself is never dropped.
 */
#include "table.h"

#define HG_DRAWN 256                    /* edges that are drawn for at a time */
#define HG_DROPOUT_SHARE (1 << 15)      /* edges and rows (each HG_ROW_COST) of a thread's share */

typedef struct {
    uint32_t counters[4][HG_DRAWN], words[4 * HG_DRAWN];
    int64_t row[HG_DRAWN];
    uint8_t loop[HG_DRAWN];
    int32_t kept[HG_DRAWN];             /* which of them are kept, without branches that nobody could predict */
} hg_draws;

/* Draws for num edges from edge `first` on; returns how many are kept. row: that of the first one, or an empty one before. */
static int64_t draw(const hg_edge_dropout_args *a, const hg_kernels *table, const hg_round_keys *keys, int64_t row,
                    int64_t first, int64_t num, hg_draws *d)
{
    const int32_t *indices = a->indices + first;
    uint64_t row_id = (uint64_t)a->row_ids[a->rows ? a->rows[row] : row];
    uint32_t equal = 0;
    for (int64_t e = first; e > a->indptr[row] && a->indices[e] == a->indices[e - 1]; e--)
        equal++;
    for (int64_t t = 0; t < num; t++) {
        if (t > 0)
            equal = indices[t] == indices[t - 1] ? equal + 1 : 0;
        if (first + t >= a->indptr[row + 1]) {
            while (first + t >= a->indptr[row + 1])
                row++;
            row_id = (uint64_t)a->row_ids[a->rows ? a->rows[row] : row];
            equal = 0;
        }
        const uint64_t column_id = (uint64_t)a->column_ids[indices[t]];
        const int forward = a->ends == HG_ROWS_ARE_EITHER ? row_id > column_id : a->ends == HG_ROWS_ARE_DESTINATIONS;
        const uint64_t dst = forward ? row_id : column_id, src = forward ? column_id : row_id;
        d->counters[0][t] = (uint32_t)dst;
        d->counters[1][t] = (uint32_t)src;
        d->counters[2][t] = (uint32_t)((dst >> 32) & 0xffff) | (uint32_t)((src >> 32) & 0xffff) << 16;
        d->counters[3][t] = equal;
        d->row[t] = row;
        d->loop[t] = row_id == column_id;
    }
    table->philox_blocks(keys, d->counters[0], d->counters[1], d->counters[2], d->counters[3], num, d->words);
    int64_t count = 0;
    for (int64_t t = 0; t < num; t++) {
        d->kept[count] = (int32_t)t;
        count += (d->words[4 * t] >= a->threshold) | d->loop[t];
    }
    return count;
}

static void copy_numbers(void *to, const void *from, const int32_t *which, int64_t num, int32_t bytes)
{
    for (int64_t k = 0; k < num && bytes == 4; k++)
        ((uint32_t *)to)[k] = ((const uint32_t *)from)[which[k]];
    for (int64_t k = 0; k < num && bytes == 8; k++)
        ((uint64_t *)to)[k] = ((const uint64_t *)from)[which[k]];
}

/* Number `at` of numbers of so many bytes. */
static void *number(const void *of, int64_t at, int32_t bytes)
{
    return (char *)of + at * bytes;
}

/* Of the kept edges of the rows [first, last): counts them into kept_indptr and adds their weights to degree, or copies them
 * to the places from `at` on, if there is room, or both. */
static void go_over(const hg_edge_dropout_args *a, const hg_kernels *table, const hg_round_keys *keys, int64_t first,
                    int64_t last, int counts, int copies, int64_t at)
{
    hg_draws d;
    int64_t row = first, num;
    for (int64_t i = first; i < last && counts; i++)
        a->kept_indptr[i + 1] = 0;
    for (int64_t begin = a->indptr[first]; begin < a->indptr[last]; begin += num) {
        num = hg_least(HG_DRAWN, a->indptr[last] - begin);
        const int64_t count = draw(a, table, keys, row, begin, num, &d);
        row = d.row[num - 1];
        for (int64_t k = 0; k < count && counts; k++) {
            const int64_t r = d.row[d.kept[k]], e = begin + d.kept[k];
            a->kept_indptr[r + 1]++;
            a->degree[a->rows ? a->rows[r] : r] += !a->weight ? 1
                : a->weight_bytes == 4 ? (double)((const float *)a->weight)[e] : ((const double *)a->weight)[e];
        }
        if (copies && at + count <= a->capacity) {
            copy_numbers(a->kept_indices + at, a->indices + begin, d.kept, count, 4);
            if (a->weight)
                copy_numbers(number(a->kept_weight, at, a->weight_bytes), number(a->weight, begin, a->weight_bytes),
                             d.kept, count, a->weight_bytes);
            if (a->edge)
                copy_numbers(number(a->kept_edge, at, a->edge_bytes), number(a->edge, begin, a->edge_bytes), d.kept,
                             count, a->edge_bytes);
        }
        at += count;
    }
}

/* Returns how many edges are kept. They are copied unless kept_indices is NULL or has no room for them. */
HG_EXPORT int64_t hg_drop_edges(int path, int num_threads, const hg_edge_dropout_args *a)
{
    const hg_kernels *table = hg_table(path);
    const hg_round_keys keys = hg_round_keys_of(a->key);
    const int64_t cost = a->indptr[a->num_rows] - a->indptr[0] + HG_ROW_COST * a->num_rows;
    const int64_t shares = (cost + HG_DROPOUT_SHARE - 1) / HG_DROPOUT_SHARE;
    const int copies = a->kept_indices != NULL, once = num_threads == 1 || shares <= 1;
    a->kept_indptr[0] = 0;
    for (int pass = 0; pass < (once || !copies ? 1 : 2); pass++) {
        #pragma omp parallel for schedule(dynamic, 1) num_threads(once ? 1 : num_threads)
        for (int64_t s = 0; s < (once ? 1 : shares); s++) {
            int64_t first = 0, last = a->num_rows;
            if (!once) {
                first = hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, s * HG_DROPOUT_SHARE);
                last = hg_row_of_cost(a->indptr, a->num_rows, HG_ROW_COST, (s + 1) * HG_DROPOUT_SHARE);
            }
            go_over(a, table, &keys, first, last, pass == 0, copies && (once || pass == 1), a->kept_indptr[first]);
        }
        for (int64_t i = 0; i < a->num_rows && pass == 0; i++)
            a->kept_indptr[i + 1] += a->kept_indptr[i];
    }
    return a->kept_indptr[a->num_rows];
}
