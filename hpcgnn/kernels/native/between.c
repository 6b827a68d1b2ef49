/* What is done to rows between two layers: who does which rows. The loops over columns are in between.h. */
#include <math.h>

#include "table.h"
#include "vector.h"

static int threads_for(int64_t elements, int num_threads)
{
    return elements < HG_SMALL ? 1 : num_threads;
}

/* out = ELU of x (rows, width), which may be out itself. */
HG_EXPORT void hg_elu(int path, int num_threads, int type, void *out, int64_t out_stride, const void *x,
                      int64_t x_stride, int64_t rows, int64_t width)
{
    void (*elu)(void *, const void *, int64_t) = hg_table(path)->of[type]->between.elu;
    const int64_t size = hg_size_of(type);
    #pragma omp parallel for schedule(static) num_threads(threads_for(rows * width, num_threads))
    for (int64_t i = 0; i < rows; i++)
        elu((char *)out + i * out_stride * size, (const char *)x + i * x_stride * size, width);
}

/* out = the gradient of ELU's input from that of its result y, or gy where y is NULL. Unless NULL, sums (F) += the
 * columns' sums of it, by way of partial (rows / HG_SUMMED_ROWS rounded up, F): zeros, and dots (rows, heads) = <out, x
 * - bias> of each head. If `scaled`, what dots holds before multiplies out, after the sums. */
HG_EXPORT void hg_elu_gradient(int path, int num_threads, int type, void *out, int64_t out_stride, const void *gy,
                               int64_t gy_stride, const void *y, int64_t y_stride, const void *x, int64_t x_stride,
                               void *dots, int64_t dots_stride, const void *bias, void *sums, void *partial,
                               int64_t rows, int64_t heads, int64_t head_width, int scaled)
{
    const hg_between_kernels *kernels = &hg_table(path)->of[type]->between;
    const int64_t size = hg_size_of(type), width = heads * head_width, shares = hg_shares_of(rows);
    #pragma omp parallel for schedule(static) num_threads(threads_for(rows * width, num_threads))
    for (int64_t s = 0; s < shares; s++)
        for (int64_t i = s * HG_SUMMED_ROWS; i < (s + 1) * HG_SUMMED_ROWS && i < rows; i++)
            kernels->elu_gradient((char *)out + i * out_stride * size, (const char *)gy + i * gy_stride * size,
                                  y ? (const char *)y + i * y_stride * size : NULL, (const char *)x + i * x_stride * size, bias,
                                  dots ? (char *)dots + i * dots_stride * size : NULL,
                                  sums ? (char *)partial + s * width * size : NULL, heads, head_width, scaled);
    if (sums)
        kernels->bias_gradient(sums, partial, width, shares, width);
}

/* out = 0 where y (rows, width) is 0 or less, else scale times the gradient; out, of y's type, may be y. The gradient is of
 * float32 where that is bfloat16, else of the same type. */
HG_EXPORT void hg_relu_gradient(int path, int num_threads, int type, void *out, int64_t out_stride, const void *gradient,
                                int64_t gradient_stride, const void *y, int64_t y_stride, int64_t rows, int64_t width,
                                double scale)
{
    void (*relu_gradient)(void *, const void *, const void *, int64_t, double) = hg_table(path)->relu_gradient[type];
    const int64_t size = hg_size_of(type), wide = type == HG_BF16 ? hg_size_of(HG_F32) : size;
    #pragma omp parallel for schedule(static) num_threads(threads_for(rows * width, num_threads))
    for (int64_t i = 0; i < rows; i++)
        relu_gradient((char *)out + i * out_stride * size, (const char *)gradient + i * gradient_stride * wide,
                      (const char *)y + i * y_stride * size, width, scale);
}

/* share = 1 / denominator, and top = maximum, of a row; 1 and infinity where it has no edges. */
#define HG_SHARES(type)                                                                                                \
    static void shares_##type(type *share, type *top, const type *denominator, const type *maximum, int64_t heads)     \
    {                                                                                                                  \
        for (int64_t h = 0; h < heads; h++) {                                                                          \
            const type part = 1 / denominator[h];                                                                      \
            top[h] = maximum[h] == -HUGE_VAL ? (type)HUGE_VAL : maximum[h];                                            \
            share[h] = part == HUGE_VAL ? 1 : part;                                                                    \
        }                                                                                                              \
    }
HG_SHARES(float)
HG_SHARES(double)

/* y (rows, F) = y / denominator (rows, heads) + bias (F), unless NULL; rows with a denominator of 0 get the bias alone. Unless
 * NULL, share and top, which may be the maximum, (rows, heads): see above. */
HG_EXPORT void hg_normalise(int path, int num_threads, int type, void *y, int64_t y_stride, const void *denominator,
                            int64_t denominator_stride, const void *bias, const void *maximum, int64_t maximum_stride,
                            void *top, int64_t top_stride, void *share, int64_t share_stride, int64_t rows, int64_t heads,
                            int64_t head_width)
{
    const hg_between_kernels *kernels = &hg_table(path)->of[type]->between;
    const int64_t size = hg_size_of(type);
    #pragma omp parallel for schedule(static) num_threads(threads_for(rows * heads * head_width, num_threads))
    for (int64_t i = 0; i < rows; i++) {
        const char *divisor = (const char *)denominator + i * denominator_stride * size;
        kernels->normalise((char *)y + i * y_stride * size, divisor, bias, heads, head_width);
        if (share && type == HG_F32)
            shares_float((float *)share + i * share_stride, (float *)top + i * top_stride, (const float *)divisor,
                         (const float *)maximum + i * maximum_stride, heads);
        else if (share)
            shares_double((double *)share + i * share_stride, (double *)top + i * top_stride, (const double *)divisor,
                          (const double *)maximum + i * maximum_stride, heads);
    }
}

/* sums (F), of the accumulation type, += the columns' sums of gy (rows, F). partial (rows / HG_SUMMED_ROWS rounded up, F):
 * zeros, to work in. */
HG_EXPORT void hg_bias_gradient(int path, int num_threads, int type, void *sums, const void *gy, int64_t gy_stride,
                                void *partial, int64_t rows, int64_t width)
{
    const hg_between_kernels *kernels = &hg_table(path)->of[type == HG_F64]->between;
    const int64_t size = hg_size_of(type), shares = hg_shares_of(rows);
    #pragma omp parallel for schedule(static) num_threads(threads_for(rows * width, num_threads))
    for (int64_t s = 0; s < shares; s++) {
        const int64_t first = s * HG_SUMMED_ROWS, num = hg_least(rows - first, HG_SUMMED_ROWS);
        const char *x = (const char *)gy + first * gy_stride * size;
        void *to = (char *)partial + s * width * (type == HG_F64 ? 8 : 4);
        if (type != HG_BF16)
            kernels->bias_gradient(to, x, gy_stride, num, width);
        for (int64_t i = 0; type == HG_BF16 && i < num; i++)
            for (int64_t c = 0; c < width; c++)
                ((float *)to)[c] += hg_float_of_bf16(((const uint16_t *)x)[i * gy_stride + c]);
    }
    kernels->bias_gradient(sums, partial, width, shares, width);
}
