/* Batch normalisation: who does which rows. The loops over columns are in norm.h.
 *
 * Sums are made of HG_SUMMED_ROWS rows at a time, each by one thread, and these are added in order: no sum depends on the
 * number of threads. HG_SUMMED_SHARES of them are made before they are added, which bounds the memory in between. */
#include <string.h>

#include "table.h"

#define HG_ADDED_COLUMNS 16     /* columns that a thread adds at a time: two lines of cache */

/* What is summed: moments of x alone, or with gy what norm.h's gradient_sums sums. */
typedef struct {
    const hg_norm_kernels *kernels;
    const char *x, *gy;         /* gy: NULL for moments of x */
    int64_t x_stride, gy_stride, size, width;
    const void *mean, *inverse;
    int type;
} hg_sums_job;

/* One share of rows, from row i on. Of moments, sums (3 F) get the sums, the squares of distances from the mean of these rows, and
 * that mean, rounded to the accumulation type. The rows are in the cache when they are read again. */
static void sum_share(const hg_sums_job *job, double *sums, int64_t columns, int64_t i, int64_t num)
{
    const char *x = job->x + i * job->x_stride * job->size;
    const int64_t width = job->width;
    memset(sums, 0, (size_t)columns * sizeof *sums);
    if (job->gy) {
        job->kernels->gradient_sums(sums, job->gy + i * job->gy_stride * job->size, job->gy_stride, x, job->x_stride,
                                    job->mean, job->inverse, num, width);
        return;
    }
    double *squares = sums + width;
    void *mean = sums + 2 * width;
    job->kernels->column_sums(sums, x, job->x_stride, NULL, num, width);
    for (int64_t c = 0; c < width; c++)
        if (job->type == HG_F64)
            ((double *)mean)[c] = sums[c] / (double)num;
        else
            ((float *)mean)[c] = (float)(sums[c] / (double)num);
    job->kernels->column_sums(squares, x, job->x_stride, mean, num, width);
    for (int64_t c = 0; c < width; c++) {
        const double rounded = job->type == HG_F64 ? ((double *)mean)[c] : (double)((float *)mean)[c];
        const double rest = sums[c] / (double)num - rounded, least = squares[c] - (double)num * rest * rest;
        squares[c] = least < 0 ? 0 : least;     /* not a number stays one */
    }
}

/* Columns [from, to) of sums of n rows += those of a share of num more rows. Of moments: Chan et al., "Algorithms for computing
 * the sample variance", 1983, eq. 2.1. */
static void add_share(const hg_sums_job *job, double *sums, const double *share, int64_t from, int64_t to, int64_t n, int64_t num)
{
    const double of_all = n ? 1 / (double)n : 0, of_share = 1 / (double)num, factor = (double)n * (double)num / (double)(n + num);
    for (int64_t c = from; c < to; c++) {
        if (!job->gy) {
            const double distance = share[c] * of_share - sums[c] * of_all;
            sums[job->width + c] += share[job->width + c] + distance * distance * factor;
        }
        sums[c] += share[c];
    }
}

/* A thread makes the sums of its shares, and then, in the same region, it adds all shares of its columns in order. */
static void sum_all(const hg_sums_job *job, int num_threads, double *sums, double *partial, int64_t rows)
{
    const int64_t shares = hg_shares_of(rows), columns = (job->gy ? 2 : 3) * job->width, added = job->gy ? columns : job->width;
    for (int64_t first = 0; first < shares; first += HG_SUMMED_SHARES) {
        const int64_t last = hg_least(first + HG_SUMMED_SHARES, shares);
        #pragma omp parallel num_threads(rows * job->width < HG_SMALL ? 1 : num_threads)
        {
            #pragma omp for schedule(static)
            for (int64_t s = first; s < last; s++) {
                const int64_t i = s * HG_SUMMED_ROWS;
                sum_share(job, partial + (s - first) * columns, columns, i, hg_least(rows - i, HG_SUMMED_ROWS));
            }
            #pragma omp for schedule(static)
            for (int64_t from = 0; from < added; from += HG_ADDED_COLUMNS)
                for (int64_t s = first; s < last; s++) {
                    const int64_t i = s * HG_SUMMED_ROWS;
                    add_share(job, sums, partial + (s - first) * columns, from, hg_least(from + HG_ADDED_COLUMNS, added), i,
                              hg_least(rows - i, HG_SUMMED_ROWS));
                }
        }
    }
}

/* sums (2 F) = the sums of x (rows, F) by column | of squares of distances from the mean. partial: (HG_SUMMED_SHARES
 * or fewer, 3 F), to work in. */
HG_EXPORT void hg_column_moments(int path, int num_threads, int type, double *sums, const void *x, int64_t x_stride,
                                 double *partial, int64_t rows, int64_t width)
{
    const hg_sums_job job = {.kernels = &hg_table(path)->norm[type], .x = x, .x_stride = x_stride, .type = type,
                             .size = hg_size_of(type), .width = width};
    memset(sums, 0, (size_t)(2 * width) * sizeof *sums);
    sum_all(&job, num_threads, sums, partial, rows);
}

/* sums (2 F) += the rows of gy (rows, F) | gy times (x - mean) * inverse. partial: (HG_SUMMED_SHARES or fewer, 2 F). */
HG_EXPORT void hg_norm_gradient_sums(int path, int num_threads, int type, double *sums, const void *gy, int64_t gy_stride,
                                     const void *x, int64_t x_stride, const void *mean, const void *inverse, double *partial,
                                     int64_t rows, int64_t width)
{
    const hg_sums_job job = {.kernels = &hg_table(path)->norm[type], .x = x, .x_stride = x_stride, .gy = gy,
                             .gy_stride = gy_stride, .mean = mean, .inverse = inverse, .size = hg_size_of(type),
                             .width = width};
    sum_all(&job, num_threads, sums, partial, rows);
}

/* y (rows, F) = (x - mean) * inverse * weight + bias, all four (F). relu: ReLU comes behind it, and with ids dropout, as of
 * hg_dropout, while the rows are in the cache. */
HG_EXPORT void hg_norm_columns(int path, int num_threads, int type, void *y, int64_t y_stride, const void *x, int64_t x_stride,
                               const void *mean, const void *inverse, const void *weight, const void *bias,
                               const int64_t *ids, uint64_t key, uint32_t threshold, double scale, int64_t rows,
                               int64_t width, int relu)
{
    static const uint32_t zeros[256];
    const hg_norm_kernels *kernels = &hg_table(path)->norm[type];
    const void *const vectors[] = {mean, inverse, weight, bias};
    const int64_t size = hg_size_of(type), share = HG_SMALL / (width + 1) + 1, shares = (rows + share - 1) / share;
    hg_mask mask = hg_mask_of(path, key, ids ? threshold : 0, ids ? scale : 1);
    mask.rule.relu = relu;
    #pragma omp parallel for schedule(static) num_threads(rows * width < HG_SMALL ? 1 : num_threads)
    for (int64_t s = 0; s < shares; s++) {
        const int64_t first = s * share, last = hg_least(first + share, rows);
        for (int64_t i = first; i < last; i++) {
            char *row = (char *)y + i * y_stride * size;
            kernels->normalise(row, (const char *)x + i * x_stride * size, vectors, width);
            for (int64_t c = 0; relu && !ids && c < width; c += 256)
                mask.table->drop[type](row + c * size, row + c * size, zeros, hg_least(width - c, 256), &mask.rule);
        }
        if (relu && ids)
            hg_mask_rows(&mask, type, (char *)y + first * y_stride * size, y_stride, ids + first, NULL, last - first, 0, width);
    }
}

/* gx (rows, F) = (gy - mean_gy - (x - mean) * inverse * mean_product) * factor, all five (F). */
HG_EXPORT void hg_norm_columns_gradient(int path, int num_threads, int type, void *gx, int64_t gx_stride, const void *gy,
                                        int64_t gy_stride, const void *x, int64_t x_stride, const void *mean,
                                        const void *inverse, const void *mean_gy, const void *mean_product, const void *factor,
                                        int64_t rows, int64_t width)
{
    const hg_norm_kernels *kernels = &hg_table(path)->norm[type];
    const void *const vectors[] = {mean, inverse, mean_gy, mean_product, factor};
    const int64_t size = hg_size_of(type);
    #pragma omp parallel for schedule(static) num_threads(rows * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < rows; i++)
        kernels->gradient((char *)gx + i * gx_stride * size, (const char *)gy + i * gy_stride * size,
                          (const char *)x + i * x_stride * size, vectors, width);
}
