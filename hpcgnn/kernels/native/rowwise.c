/* Kernels that treat rows one by one: packing rows into a buffer, random words, dropout. */
#include <string.h>

#include "table.h"

#define HG_BATCH 64             /* counters per call of philox_blocks */
#define HG_OWNED_ROWS 7         /* 2 to this power: neighbouring rows that one thread adds to, so that it reads on and few lines are shared */
#define HG_ROW_GROUPS 128       /* groups of four columns per call of philox_row: 2 KiB of words */

/* A share of rows worth about 32 Ki elements. */
static int64_t rows_per_share(int64_t width)
{
    int64_t rows = (1 << 15) / (width + 1);
    return rows < 1 ? 1 : rows;
}

hg_round_keys hg_round_keys_of(uint64_t key)
{
    hg_round_keys keys;
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        keys.word[2 * round] = low;
        keys.word[2 * round + 1] = high;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return keys;
}

/* out[i] = scale[j] * x[j] for j = index[i], or i where index is NULL; scale (of the accumulation type) may be NULL, for 1. */
HG_EXPORT void hg_pack(int path, int num_threads, void *out, int64_t out_stride, int out_type, const void *x,
                       int64_t x_stride, int x_type, const int32_t *index, int64_t num, int64_t width,
                       const void *scale)
{
    void (*copy)(void *, const void *, int64_t, double) = hg_table(path)->copy_row[x_type][out_type];
    const int64_t from = hg_size_of(x_type), to = hg_size_of(out_type), share = rows_per_share(width);
    #pragma omp parallel for schedule(dynamic, share) num_threads(num * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < num; i++) {
        int64_t j = index ? index[i] : i;
        if (index && i + 8 < num) {
            const char *ahead = (const char *)x + index[i + 8] * x_stride * from;
            for (int64_t b = 0; b < width * from && b < 512; b += 64)
                __builtin_prefetch(ahead + b);
        }
        double factor = !scale ? 1 : x_type == HG_F64 ? ((const double *)scale)[j] : ((const float *)scale)[j];
        copy((char *)out + i * out_stride * to, (const char *)x + j * x_stride * from, width, factor);
    }
}

/* out[index[i]] += weight[i] * x[place[i]] for i < num in order; place NULL: i, weight (of the accumulation type) NULL: 1.
 *
 * distinct: no row of out is named twice, so that any thread may add to any. Otherwise a row belongs to one thread, which
 * looks through all of index for its own: reading a number is little beside adding a row, and no sum depends on who makes it. */
HG_EXPORT void hg_add_rows(int path, int num_threads, int type, void *out, int64_t out_stride, const int32_t *index,
                           const void *x, int64_t x_stride, const int32_t *place, const void *weight, int64_t num,
                           int64_t width, int distinct)
{
    void (*add)(void *, const void *, int64_t, double) = hg_table(path)->add_row[type];
    const int64_t size = hg_size_of(type);
    if (num * width < HG_SMALL)
        num_threads = 1;
    const int64_t share = distinct ? rows_per_share(width) : num, shares = num == 0 ? 0 : (num + share - 1) / share;
    int64_t owners = 1;
    while (!distinct && num_threads > 1 && owners < 2 * num_threads)
        owners *= 2;
    #pragma omp parallel for schedule(dynamic, 1) collapse(2) num_threads(num_threads)
    for (int64_t s = 0; s < shares; s++)
        for (int64_t owner = 0; owner < owners; owner++) {
            const int64_t last = hg_least((s + 1) * share, num);
            for (int64_t i = s * share; i < last; i++) {
                if (((index[i] >> HG_OWNED_ROWS) & (owners - 1)) != owner)
                    continue;
                if (i + 4 < last && ((index[i + 4] >> HG_OWNED_ROWS) & (owners - 1)) == owner)
                    hg_prefetch_row((char *)out + index[i + 4] * out_stride * size, hg_least(width * size, 512));
                const double factor = !weight ? 1 : type == HG_F64 ? ((const double *)weight)[i] : ((const float *)weight)[i];
                add((char *)out + index[i] * out_stride * size,
                    (const char *)x + (place ? place[i] : i) * x_stride * size, width, factor);
            }
        }
}

/* What to do with a row's words: keep them, or drop by them. */
typedef struct {
    hg_mask mask;
    int64_t *words;             /* (num, width), or NULL */
    char *out;                  /* else elements of `type` */
    const char *x;
    const int32_t *index;       /* the rows of x, or NULL: one after the other */
    const char *part;           /* of each row, elements of `type`; or NULL: 1 */
    int64_t out_stride, x_stride, width;
    int64_t group;              /* the group of four columns that the rows begin with */
    int type, x_type;
} hg_row_job;

static void use_words(const hg_row_job *job, int64_t i, int64_t column, int64_t num, const uint32_t *words)
{
    if (job->words) {
        for (int64_t c = 0; c < num; c++)
            job->words[i * job->width + column + c] = words[c];
        return;
    }
    const hg_kernels *table = job->mask.table;
    const int64_t size = hg_size_of(job->type), row = job->index ? job->index[i] : i;
    const char *x = job->x + (row * job->x_stride + column) * hg_size_of(job->x_type);
    char *out = job->out + (i * job->out_stride + column) * size;
    if (job->x_type != job->type) {
        table->copy_row[job->x_type][job->type](out, x, num, 1);
        x = out;
    }
    if (job->part)
        table->drop_part[job->type](out, x, words, num, &job->mask.rule, job->part + i * size);
    else
        table->drop[job->type](out, x, words, num, &job->mask.rule);
}

/* Wide rows: the lanes of a register are neighbouring groups of one row. */
static void wide_rows(const hg_row_job *job, const int64_t *ids, int64_t first, int64_t last)
{
    uint32_t words[4 * (HG_ROW_GROUPS + 8)];
    const int64_t groups = (job->width + 3) / 4;
    for (int64_t i = first; i < last; i++)
        for (int64_t g = 0; g < groups; g += HG_ROW_GROUPS) {
            int64_t count = groups - g < HG_ROW_GROUPS ? groups - g : HG_ROW_GROUPS;
            int64_t columns = job->width - 4 * g < 4 * count ? job->width - 4 * g : 4 * count;
            job->mask.table->philox_row(&job->mask.keys, ids[i], (uint32_t)(job->group + g), count, words);
            use_words(job, i, 4 * g, columns, words);
        }
}

/* Narrow rows would leave most lanes idle that way: batches of counters run over several rows instead. */
static void narrow_rows(const hg_row_job *job, const int64_t *ids, int64_t first, int64_t last)
{
    uint32_t c[4][HG_BATCH] = {{0}}, words[4 * HG_BATCH];
    const int64_t groups = (job->width + 3) / 4, rows = HG_BATCH / groups;
    for (int64_t i = first; i < last; i += rows) {
        int64_t count = last - i < rows ? last - i : rows;
        for (int64_t k = 0, n = 0; k < count; k++)
            for (int64_t g = 0; g < groups; g++, n++) {
                c[0][n] = (uint32_t)(job->group + g);
                c[1][n] = (uint32_t)ids[i + k];
                c[2][n] = (uint32_t)((uint64_t)ids[i + k] >> 32);
            }
        job->mask.table->philox_blocks(&job->mask.keys, c[0], c[1], c[2], c[3], count * groups, words);
        for (int64_t k = 0; k < count; k++)
            use_words(job, i + k, 0, job->width, words + 4 * groups * k);
    }
}

static void some_rows(const hg_row_job *job, const int64_t *ids, int64_t first, int64_t last)
{
    if (job->width > 32)
        wide_rows(job, ids, first, last);
    else
        narrow_rows(job, ids, first, last);
}

static void run_rows(const hg_row_job *job, int num_threads, const int64_t *ids, int64_t num)
{
    const int64_t share = rows_per_share(job->width), shares = (num + share - 1) / share;
    if (job->width == 0)
        return;
    if (num * job->width < HG_SMALL)
        num_threads = 1;
    #pragma omp parallel for schedule(dynamic, 1) num_threads(num_threads)
    for (int64_t s = 0; s < shares; s++) {
        int64_t first = s * share, last = first + share < num ? first + share : num;
        some_rows(job, ids, first, last);
    }
}

hg_mask hg_mask_of(int path, uint64_t key, uint32_t threshold, double scale)
{
    return (hg_mask){.table = hg_table(path), .keys = hg_round_keys_of(key), .rule = {threshold, scale}};
}

void hg_mask_rows(const hg_mask *mask, int type, void *x, int64_t stride, const int64_t *ids, const void *part, int64_t num,
                  int64_t column, int64_t width)
{
    const hg_row_job job = {.mask = *mask, .out = x, .x = x, .part = part, .out_stride = stride, .x_stride = stride, .width = width,
                            .group = column / 4, .type = type, .x_type = type};
    if (width > 0)
        some_rows(&job, ids, 0, num);
}

/* words[i, c] = the random word of (ids[i], c). */
HG_EXPORT void hg_random_words(int path, int num_threads, uint64_t key, const int64_t *ids, int64_t num,
                               int64_t columns, int64_t *words)
{
    hg_row_job job = {.mask = hg_mask_of(path, key, 0, 1), .words = words, .width = columns};
    run_rows(&job, num_threads, ids, num);
}

/* out[i, c] = part[i] * dropped + (1 - part[i]) * x[j, c]; dropped is x[j, c] * scale where the word of (ids[i], c) is at
 * least threshold, else 0. j: index[i], or i; part may be NULL, for 1. x is of the type of out and part, or narrower. relu,
 * without part: ReLU of x comes first. */
HG_EXPORT void hg_dropout(int path, int num_threads, uint64_t key, uint32_t threshold, double scale, int type,
                          void *out, int64_t out_stride, const void *x, int64_t x_stride, int x_type,
                          const int32_t *index, const void *part, const int64_t *ids, int64_t num, int64_t width,
                          int relu)
{
    hg_row_job job = {.mask = hg_mask_of(path, key, threshold, scale), .out = out, .x = x, .index = index, .part = part,
                      .out_stride = out_stride, .x_stride = x_stride, .width = width, .type = type, .x_type = x_type};
    job.mask.rule.relu = relu;
    run_rows(&job, num_threads, ids, num);
}

/* The same for the stored entries of a sparse matrix: entry e of row i stands at (ids[i], columns[e]). */
HG_EXPORT void hg_dropout_entries(int path, int num_threads, uint64_t key, uint32_t threshold, double scale, int type,
                                  void *out, const void *data, const int64_t *indptr, const int64_t *ids,
                                  const int32_t *columns, int64_t num_rows)
{
    const hg_mask mask = hg_mask_of(path, key, threshold, scale);
    const int64_t begin = indptr[0], end = indptr[num_rows], share = 1 << 13, size = hg_size_of(type);
    if (end - begin < share)
        num_threads = 1;
    #pragma omp parallel for schedule(dynamic, 1) num_threads(num_threads)
    for (int64_t s = begin; s < end; s += share) {
        const int64_t last = s + share < end ? s + share : end;
        int64_t i = hg_row_of_cost(indptr, num_rows, 0, s + 1 - begin) - 1;     /* the row that holds entry s */
        uint32_t c[4][HG_BATCH] = {{0}}, words[4 * HG_BATCH], chosen[HG_BATCH];
        for (int64_t e = s; e < last; e += HG_BATCH) {
            const int64_t count = last - e < HG_BATCH ? last - e : HG_BATCH;
            for (int64_t k = 0; k < count; k++) {
                while (indptr[i + 1] <= e + k)
                    i++;
                c[0][k] = (uint32_t)columns[e + k] >> 2;
                c[1][k] = (uint32_t)ids[i];
                c[2][k] = (uint32_t)((uint64_t)ids[i] >> 32);
            }
            mask.table->philox_blocks(&mask.keys, c[0], c[1], c[2], c[3], count, words);
            for (int64_t k = 0; k < count; k++)
                chosen[k] = words[4 * k + (columns[e + k] & 3)];
            mask.table->drop[type]((char *)out + e * size, (const char *)data + e * size, chosen, count, &mask.rule);
        }
    }
}
