/* Template: the products of one vector path, HG_VECTOR_BYTES wide. Only products.c and projection.c call them.
 *
 * HG_HEIGHT rows of a panel's columns are summed in registers. With AVX2 twelve sums of eight columns, two registers of the
 * panel and one of an element of x take fifteen of sixteen registers; for every twelve multiplications there are eight loads, which
 * take the ports for loads less time than the others need. With AVX-512 a multiplication reads its element of x itself, and eight
 * sums of sixteen columns keep more of them on their way than one takes to finish. Either begins as many as the processor can
 * as long as all is in the first-level cache; hence the prefetching. Measured (`HPCGNN_VECTOR=avx2 python jobs/bench/products.py
 * --threads 2`, and avx512; Zen 4, 256 columns, GFLOP/s): x W 199 and 213, x' g 185 and 195.
 */
#define HG_UNITS (HG_PANEL * 4 / HG_VECTOR_BYTES)
#define HG_LINE 16              /* numbers of a cache line */
#define HG_LINES_AHEAD ((HG_PANEL * HG_HEIGHT + HG_ROWS - 1) / HG_ROWS)
typedef float unit __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef float loose __attribute__((vector_size(HG_VECTOR_BYTES), aligned(4), may_alias));
#define HG_AT(p, u) (*(loose *)((p) + (u) * (HG_VECTOR_BYTES / 4)))
#define HG_CONST_AT(p, u) (*(const loose *)((p) + (u) * (HG_VECTOR_BYTES / 4)))

/* sums of i += x[i * step] times the panel's columns at `right`, for `num` of them, a constant. */
HG_INLINE void add_products(unit sums[HG_HEIGHT][HG_UNITS], const float *x, int64_t step, const float *right, const int num)
{
    unit columns[HG_UNITS];
    HG_UNROLL
    for (int u = 0; u < HG_UNITS; u++)
        columns[u] = HG_CONST_AT(right, u);
    HG_UNROLL
    for (int i = 0; i < num; i++) {
        HG_UNROLL
        for (int u = 0; u < HG_UNITS; u++)
            sums[i][u] += x[i * step] * columns[u];
    }
}

/* `rows` of them, a constant. ahead: HG_LINES_AHEAD * depth numbers that are needed soon. */
HG_INLINE void multiply_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                             const float *bias, const float *ahead, int64_t depth, int64_t num, int add, const int rows)
{
    unit sums[HG_HEIGHT][HG_UNITS] = {{{0}}};
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(y + i * y_stride, 1);
        HG_UNROLL
        for (int u = 0; bias && u < HG_UNITS; u++)
            sums[i][u] = HG_CONST_AT(bias, u);
    }
    for (int64_t from = 0; from < depth; from += HG_LINE) {
        const int64_t to = from + HG_LINE < depth ? from + HG_LINE : depth;
        HG_UNROLL
        for (int i = 0; i < rows; i++)
            __builtin_prefetch(x + (i + rows) * x_stride + from);
        HG_UNROLL
        for (int k = 0; k < HG_LINES_AHEAD; k++)
            __builtin_prefetch(ahead + HG_LINES_AHEAD * from + k * HG_LINE);
        for (int64_t k = from; k < to; k++)
            add_products(sums, x + k, x_stride, panel + k * HG_PANEL, rows);
    }
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        float *to = y + i * y_stride, result[HG_PANEL] = {0};
        HG_UNROLL
        for (int u = 0; u < HG_UNITS; u++) {
            if (num < HG_PANEL)
                HG_AT(result, u) = sums[i][u];
            else if (add)
                HG_AT(to, u) += sums[i][u];
            else
                HG_AT(to, u) = sums[i][u];
        }
        for (int64_t c = 0; num < HG_PANEL && c < num; c++)
            to[c] = add ? to[c] + result[c] : result[c];
    }
}

void HG_NAME(hg_multiply)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel, const float *bias,
                          int64_t rows, int64_t depth, int64_t num, int add)
{
    int64_t i = 0;
#define HG_SOME(rows, ahead)                                                                                           \
    multiply_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, panel, bias, ahead, depth, num, add, rows)
    for (; i + HG_HEIGHT <= rows; i += HG_HEIGHT)
        HG_SOME(HG_HEIGHT, panel + (HG_PANEL + i / HG_HEIGHT * HG_LINES_AHEAD) * depth);
    if (i + 4 <= rows) {
        HG_SOME(4, panel);
        i += 4;
    }
    for (; i < rows; i++)
        HG_SOME(1, panel);
}

/* `num` columns of x, a constant. The rows' sum is made by itself first, which loses fewer digits than adding each row. */
HG_INLINE void multiply_columns(float *sums, const float *x, int64_t x_stride, const float *right, int64_t right_stride,
                                int64_t rows, const int num)
{
    unit total[HG_HEIGHT][HG_UNITS] = {{{0}}};
    for (int64_t k = 0; k < rows; k++) {
        __builtin_prefetch(x + k * x_stride + num);
        add_products(total, x + k * x_stride, 1, right + k * right_stride, num);
    }
    HG_UNROLL
    for (int i = 0; i < num; i++) {
        HG_UNROLL
        for (int u = 0; u < HG_UNITS; u++)
            HG_AT(sums + i * HG_PANEL, u) += total[i][u];
    }
}

void HG_NAME(hg_multiply_transposed)(float *sums, const float *x, int64_t x_stride, const float *right, int64_t right_stride,
                                     int64_t rows, int64_t depth)
{
    int64_t d = 0;
#define HG_COLUMNS(num) multiply_columns(sums + d * HG_PANEL, x + d, x_stride, right, right_stride, rows, num)
    for (; d + HG_HEIGHT <= depth; d += HG_HEIGHT)
        HG_COLUMNS(HG_HEIGHT);
    if (d + 4 <= depth) {
        HG_COLUMNS(4);
        d += 4;
    }
    for (; d < depth; d++)
        HG_COLUMNS(1);
}
