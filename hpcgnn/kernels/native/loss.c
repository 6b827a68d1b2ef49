/* Cross-entropy of rows, and its gradient: who does which rows. The loop over columns is in loss.h. */
#include <math.h>

#include "table.h"

/* *total = the sum over i < num of the loss of row rows[i] (NULL: i) of x (num_rows, width) with labels[i]; gradient, unless
 * NULL: of x's shape, its rows of these numbers are written. partial: as many as num / HG_SUMMED_ROWS, rounded up. Returns
 * -1, or the first i whose row or label is not there, and then some rows may be written. */
HG_EXPORT int64_t hg_cross_entropy(int path, int num_threads, int type, double *total, void *gradient,
                                   int64_t gradient_stride, const void *x, int64_t x_stride, const int64_t *rows,
                                   const int64_t *labels, double *partial, int64_t num, int64_t num_rows, int64_t width)
{
    double (*const cross_entropy)(void *, const void *, int64_t, int64_t, double *) = hg_table(path)->of[type]->cross_entropy;
    const int64_t size = hg_size_of(type), shares = hg_shares_of(num);
    int64_t wrong = num;
    #pragma omp parallel for schedule(static) reduction(min : wrong) num_threads(num * width < HG_SMALL ? 1 : num_threads)
    for (int64_t s = 0; s < shares; s++) {
        partial[s] = 0;
        for (int64_t i = s * HG_SUMMED_ROWS; i < hg_least((s + 1) * HG_SUMMED_ROWS, num); i++) {
            const int64_t row = rows ? rows[i] : i;
            if (row < 0 || row >= num_rows || labels[i] < 0 || labels[i] >= width) {
                wrong = hg_least(wrong, i);
                break;
            }
            double power;
            partial[s] += cross_entropy(gradient ? (char *)gradient + row * gradient_stride * size : NULL,
                                                 (const char *)x + row * x_stride * size, width, labels[i], &power);
            partial[s] += log(power);
        }
    }
    *total = 0;
    for (int64_t s = 0; s < shares; s++)
        *total += partial[s];
    return wrong == num ? -1 : wrong;
}
