/* Batch normalisation: who does which rows. The loops over columns are in norm.h.
 *
 * Sums are made of HG_SUMMED_ROWS rows at a time, each by one thread, and these are added in order: no sum depends on the
 * number of threads. HG_SUMMED_SHARES of them are made before they are added, which bounds the memory in between. */
#include <string.h>

#include "table.h"

/* What is summed: of x alone, as norm.h's column_sums does, or with gy, as its gradient_sums does. */
typedef struct {
    const hg_norm_kernels *kernels;
    const char *x, *gy;         /* gy: NULL for sums of x alone */
    int64_t x_stride, gy_stride, size, width;
    const void *mean, *inverse;
} hg_sums_job;

/* One share of rows, from row i on. */
static void sum_share(const hg_sums_job *job, double *sums, int64_t columns, int64_t i, int64_t num)
{
    const char *x = job->x + i * job->x_stride * job->size;
    memset(sums, 0, (size_t)columns * sizeof *sums);
    if (job->gy)
        job->kernels->gradient_sums(sums, job->gy + i * job->gy_stride * job->size, job->gy_stride, x, job->x_stride,
                                    job->mean, job->inverse, num, job->width);
    else
        job->kernels->column_sums(sums, x, job->x_stride, job->mean, num, job->width);
}

static void sum_all(const hg_sums_job *job, int num_threads, double *sums, double *partial, int64_t rows)
{
    const int64_t shares = hg_shares_of(rows), columns = job->gy ? 2 * job->width : job->width;
    for (int64_t first = 0; first < shares; first += HG_SUMMED_SHARES) {
        const int64_t num = hg_least(shares - first, HG_SUMMED_SHARES);
        #pragma omp parallel for schedule(static) num_threads(rows * job->width < HG_SMALL ? 1 : num_threads)
        for (int64_t s = 0; s < num; s++) {
            const int64_t i = (first + s) * HG_SUMMED_ROWS;
            sum_share(job, partial + s * columns, columns, i, hg_least(rows - i, HG_SUMMED_ROWS));
        }
        for (int64_t s = 0; s < num; s++)
            for (int64_t c = 0; c < columns; c++)
                sums[c] += partial[s * columns + c];
    }
}

/* sums (F) += the rows of x (rows, F) or, unless mean (F) is NULL, the squares of their distances from it. partial: (HG_SUMMED_SHARES
 * or fewer, F), to work in. */
HG_EXPORT void hg_column_sums(int path, int num_threads, int type, double *sums, const void *x, int64_t x_stride,
                              const void *mean, double *partial, int64_t rows, int64_t width)
{
    const hg_sums_job job = {.kernels = &hg_table(path)->norm[type], .x = x, .x_stride = x_stride, .mean = mean,
                             .size = hg_size_of(type), .width = width};
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

/* y (rows, F) = (x - mean) * inverse * weight + bias, all four (F). */
HG_EXPORT void hg_norm_columns(int path, int num_threads, int type, void *y, int64_t y_stride, const void *x, int64_t x_stride,
                               const void *mean, const void *inverse, const void *weight, const void *bias, int64_t rows,
                               int64_t width)
{
    const hg_norm_kernels *kernels = &hg_table(path)->norm[type];
    const void *const vectors[] = {mean, inverse, weight, bias};
    const int64_t size = hg_size_of(type);
    #pragma omp parallel for schedule(static) num_threads(rows * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < rows; i++)
        kernels->normalise((char *)y + i * y_stride * size, (const char *)x + i * x_stride * size, vectors, width);
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
