/* Template: sums of columns in double precision, and batch normalisation of rows; the compiler vectorises the loops. */

/* What is summed of row r: its numbers, or the squares of their distances from the mean m. */
#define HG_NUMBER(widen, r) widen(r[c])
#define HG_DISTANCE(widen, r) ((widen(r[c]) - m[c]) * (widen(r[c]) - m[c]))

/* Four rows at a time, so that the sums are read and written a fourth as often. */
#define HG_SUM_ROWS(element, type, widen, term)                                                                        \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 <= rows; i += 4) {                                                                                \
            const element *restrict a = from + i * stride, *restrict b = a + stride, *restrict d = b + stride,         \
                          *restrict e = d + stride;                                                                    \
            for (int64_t c = 0; c < width; c++) {                                                                      \
                const type p = term(widen, a), q = term(widen, b), s = term(widen, d), t = term(widen, e);             \
                sums[c] += ((double)p + (double)q) + ((double)s + (double)t);                                          \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < rows; i++) {                                                                                        \
            const element *restrict a = from + i * stride;                                                             \
            for (int64_t c = 0; c < width; c++)                                                                        \
                sums[c] += (double)term(widen, a);                                                                     \
        }                                                                                                              \
    }

#define HG_NORM(name, element, type, widen, narrow)                                                                    \
    /* sums (F) += the rows of x, or, with a mean, the squares of their distances from it. */                          \
    static void column_sums_##name(double *restrict sums, const void *x, int64_t stride, const void *mean,             \
                                   int64_t rows, int64_t width)                                                        \
    {                                                                                                                  \
        const element *from = (const element *)x;                                                                      \
        const type *restrict m = (const type *)mean;                                                                   \
        if (m)                                                                                                         \
            HG_SUM_ROWS(element, type, widen, HG_DISTANCE)                                                             \
        else                                                                                                           \
            HG_SUM_ROWS(element, type, widen, HG_NUMBER)                                                               \
    }                                                                                                                  \
    /* sums (2 F) += the rows of gy | gy times x as it is normalised. */                                               \
    static void gradient_sums_##name(double *restrict sums, const void *gy, int64_t gy_stride, const void *x,          \
                                     int64_t x_stride, const void *mean, const void *inverse, int64_t rows,            \
                                     int64_t width)                                                                    \
    {                                                                                                                  \
        const type *restrict m = (const type *)mean, *restrict s = (const type *)inverse;                              \
        double *restrict products = sums + width;                                                                      \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            const element *restrict g = (const element *)gy + i * gy_stride;                                           \
            const element *restrict from = (const element *)x + i * x_stride;                                          \
            for (int64_t c = 0; c < width; c++) {                                                                      \
                const type gradient = widen(g[c]), normal = (widen(from[c]) - m[c]) * s[c];                            \
                sums[c] += (double)gradient;                                                                           \
                products[c] += (double)(normal * gradient);                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* y = (x - mean) * inverse * weight + bias, one row. */                                                           \
    static void normalise_columns_##name(void *y, const void *x, const void *const vectors[4], int64_t width)          \
    {                                                                                                                  \
        const type *restrict m = (const type *)vectors[0], *restrict s = (const type *)vectors[1];                     \
        const type *restrict w = (const type *)vectors[2], *restrict b = (const type *)vectors[3];                     \
        const element *from = (const element *)x;                                                                      \
        element *to = (element *)y;                                                                                    \
        HG_INDEPENDENT                                                                                                 \
        for (int64_t c = 0; c < width; c++)                                                                            \
            to[c] = narrow((widen(from[c]) - m[c]) * s[c] * w[c] + b[c]);                                              \
    }                                                                                                                  \
    /* gx = (gy - mean of gy - (x - mean) * inverse * mean of products) * factor, one row. */                          \
    static void columns_gradient_##name(void *gx, const void *gy, const void *x, const void *const vectors[5],         \
                                        int64_t width)                                                                 \
    {                                                                                                                  \
        const type *restrict m = (const type *)vectors[0], *restrict s = (const type *)vectors[1];                     \
        const type *restrict mean_gy = (const type *)vectors[2], *restrict mean_product = (const type *)vectors[3];    \
        const type *restrict factor = (const type *)vectors[4];                                                        \
        const element *g = (const element *)gy, *from = (const element *)x;                                            \
        element *to = (element *)gx;                                                                                   \
        HG_INDEPENDENT                                                                                                 \
        for (int64_t c = 0; c < width; c++)                                                                            \
            to[c] = narrow((widen(g[c]) - mean_gy[c] - (widen(from[c]) - m[c]) * s[c] * mean_product[c]) * factor[c]); \
    }

HG_NORM(f32, float, float, HG_SAME, HG_SAME)
HG_NORM(f64, double, double, HG_SAME, HG_SAME)
HG_NORM(bf16, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)
