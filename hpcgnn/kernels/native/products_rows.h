/* Template: the products of one vector path, of AVX2 or AVX-512.
 *
 * HG_HEIGHT rows of a panel's columns are summed in registers. With AVX2 twelve sums of eight columns, two registers of
 * the panel and one of an element of x take fifteen of sixteen registers; for every twelve multiplications there are
 * eight loads, which take the ports for loads less time than the others need. With AVX-512 a multiplication reads its
 * element of x itself, and eight sums of sixteen columns keep more of them on their way than one takes to finish.
 * Either begins as many as the processor can as long as all is in the first-level cache; hence the prefetching.
 */
#define HG_HEIGHT (HG_VECTOR_BYTES == 64 ? 8 : 6)
#define HG_UNITS (HG_PANEL * 4 / HG_VECTOR_BYTES)
#define HG_LINE 16              /* numbers of a cache line */
#define HG_LINES_AHEAD ((HG_PANEL * HG_HEIGHT + HG_ROWS - 1) / HG_ROWS)
typedef float product_unit __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef float product_loose __attribute__((vector_size(HG_VECTOR_BYTES), aligned(4), may_alias));
#define HG_UNIT(p, u) (*(product_loose *)((p) + (u) * (HG_VECTOR_BYTES / 4)))
#define HG_CONST_UNIT(p, u) (*(const product_loose *)((p) + (u) * (HG_VECTOR_BYTES / 4)))

/* sums of i += x[i * step] times the panel's columns at `right`, for `num` of them, a constant. */
HG_INLINE void add_products(product_unit sums[HG_HEIGHT][HG_UNITS], const float *x, int64_t step, const float *right,
                            const int num)
{
    product_unit columns[HG_UNITS];
    HG_UNROLL
    for (int u = 0; u < HG_UNITS; u++)
        columns[u] = HG_CONST_UNIT(right, u);
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
    product_unit sums[HG_HEIGHT][HG_UNITS] = {{{0}}};
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(y + i * y_stride, 1);
        HG_UNROLL
        for (int u = 0; bias && u < HG_UNITS; u++)
            sums[i][u] = HG_CONST_UNIT(bias, u);
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
                HG_UNIT(result, u) = sums[i][u];
            else if (add)
                HG_UNIT(to, u) += sums[i][u];
            else
                HG_UNIT(to, u) = sums[i][u];
        }
        for (int64_t c = 0; num < HG_PANEL && c < num; c++)
            to[c] = add ? to[c] + result[c] : result[c];
    }
}

static void multiply_panel(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                           const float *bias, int64_t rows, int64_t depth, int64_t num, int add)
{
    int64_t i = 0;
#define HG_SOME_ROWS(rows, ahead)                                                                                           \
    multiply_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, panel, bias, ahead, depth, num, add, rows)
    for (; i + HG_HEIGHT <= rows; i += HG_HEIGHT)
        HG_SOME_ROWS(HG_HEIGHT, panel + (HG_PANEL + i / HG_HEIGHT * HG_LINES_AHEAD) * depth);
    if (i + 4 <= rows) {
        HG_SOME_ROWS(4, panel);
        i += 4;
    }
    for (; i < rows; i++)
        HG_SOME_ROWS(1, panel);
}

/* `num` columns of x, a constant. The rows' sum is made by itself first, which loses fewer digits than adding each row. */
HG_INLINE void multiply_columns(float *sums, const float *x, int64_t x_stride, const float *right, int64_t right_stride,
                                int64_t rows, const int num)
{
    product_unit total[HG_HEIGHT][HG_UNITS] = {{{0}}};
    for (int64_t k = 0; k < rows; k++) {
        __builtin_prefetch(x + k * x_stride + num);
        add_products(total, x + k * x_stride, 1, right + k * right_stride, num);
    }
    HG_UNROLL
    for (int i = 0; i < num; i++) {
        HG_UNROLL
        for (int u = 0; u < HG_UNITS; u++)
            HG_UNIT(sums + i * HG_PANEL, u) += total[i][u];
    }
}

static void multiply_transposed(float *sums, const float *x, int64_t x_stride, const float *right, int64_t right_stride,
                                int64_t rows, int64_t depth)
{
    int64_t d = 0;
#define HG_SOME_COLUMNS(num) multiply_columns(sums + d * HG_PANEL, x + d, x_stride, right, right_stride, rows, num)
    for (; d + HG_HEIGHT <= depth; d += HG_HEIGHT)
        HG_SOME_COLUMNS(HG_HEIGHT);
    if (d + 4 <= depth) {
        HG_SOME_COLUMNS(4);
        d += 4;
    }
    for (; d < depth; d++)
        HG_SOME_COLUMNS(1);
}

static void widen(float *to, int64_t stride, const uint16_t *x, int64_t x_stride, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i++) {
        float *restrict row = to + i * stride;
        for (int64_t c = 0; c < depth; c++)
            row[c] = hg_float_of_bf16(x[i * x_stride + c]);
    }
}
