/* Template: the products of one vector path, of AVX2 or AVX-512.
 *
 * HG_HEIGHT rows of HG_ABREAST panels' columns are summed in registers. With AVX2 twelve sums of eight columns, two registers
 * of the panel and one of an element of x take fifteen of sixteen registers; for every twelve multiplications there are
 * eight loads, which take the ports for loads less time than the others need. With AVX-512 an element of x is multiplied
 * with the columns of two panels: sixteen sums of sixteen columns, for which there are ten loads.
 * Either begins as many as the processor can as long as all is in the first-level cache; hence the prefetching.
 */
#define HG_HEIGHT (HG_VECTOR_BYTES == 64 ? 8 : 6)
#define HG_ABREAST (HG_VECTOR_BYTES == 64 ? 2 : 1)
#define HG_UNITS (HG_PANEL * 4 / HG_VECTOR_BYTES)       /* of a panel */
#define HG_LINES_AHEAD ((HG_PANEL * HG_HEIGHT + HG_ROWS - 1) / HG_ROWS)
typedef float product_unit __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef float product_loose __attribute__((vector_size(HG_VECTOR_BYTES), aligned(4), may_alias));
#define HG_UNIT(p, u) (*(product_loose *)((p) + (u) * (HG_VECTOR_BYTES / 4)))
#define HG_CONST_UNIT(p, u) (*(const product_loose *)((p) + (u) * (HG_VECTOR_BYTES / 4)))
/* Unit u of some panels' columns, a panel standing `apart` numbers behind the one before it. */
#define HG_COLUMNS(p, apart, u) HG_CONST_UNIT((p) + (u) / HG_UNITS * (apart), (u) % HG_UNITS)

/* sums of i += x[i * step] times the columns at `right`, of `panels` panels, for `num` of them; both are constants. */
HG_INLINE void add_products(product_unit sums[HG_HEIGHT][HG_ABREAST * HG_UNITS], const float *x, int64_t step,
                            const float *right, int64_t apart, const int num, const int panels)
{
    product_unit columns[HG_ABREAST * HG_UNITS];
    HG_UNROLL
    for (int u = 0; u < panels * HG_UNITS; u++)
        columns[u] = HG_COLUMNS(right, apart, u);
    HG_UNROLL
    for (int i = 0; i < num; i++) {
        HG_UNROLL
        for (int u = 0; u < panels * HG_UNITS; u++)
            sums[i][u] += x[i * step] * columns[u];
    }
}

/* `rows` of them, and of `panels` panels `num` columns; rows and panels are constants. ahead: HG_LINES_AHEAD * depth numbers
 * for each panel that are needed soon. */
HG_INLINE void multiply_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                             const float *bias, const float *ahead, int64_t depth, int64_t num, int add, const int rows,
                             const int panels)
{
    product_unit sums[HG_HEIGHT][HG_ABREAST * HG_UNITS] = {{{0}}};
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        HG_UNROLL
        for (int p = 0; p < panels; p++)
            __builtin_prefetch(y + i * y_stride + p * HG_PANEL, 1);
        HG_UNROLL
        for (int u = 0; u < panels * HG_UNITS; u++)
            if (bias)
                sums[i][u] = HG_CONST_UNIT(bias, u);
    }
    for (int64_t from = 0; from < depth; from += HG_LINE) {
        const int64_t to = from + HG_LINE < depth ? from + HG_LINE : depth;
        HG_UNROLL
        for (int i = 0; i < rows; i++)
            __builtin_prefetch(x + (i + rows) * x_stride + from);
        HG_UNROLL
        for (int k = 0; k < panels * HG_LINES_AHEAD; k++)
            __builtin_prefetch(ahead + panels * HG_LINES_AHEAD * from + k * HG_LINE);
        for (int64_t k = from; k < to; k++)
            add_products(sums, x + k, x_stride, panel + k * HG_PANEL, depth * HG_PANEL, rows, panels);
    }
    const int whole = num == panels * HG_PANEL;
    HG_UNROLL
    for (int i = 0; i < rows; i++) {
        float *to = y + i * y_stride, result[HG_ABREAST * HG_PANEL] = {0};
        HG_UNROLL
        for (int u = 0; u < panels * HG_UNITS; u++) {
            if (!whole)
                HG_UNIT(result, u) = sums[i][u];
            else if (add)
                HG_UNIT(to, u) += sums[i][u];
            else
                HG_UNIT(to, u) = sums[i][u];
        }
        for (int64_t c = 0; !whole && c < num; c++)
            to[c] = add ? to[c] + result[c] : result[c];
    }
}

HG_INLINE void multiply_panels(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel,
                               const float *bias, int64_t rows, int64_t depth, int64_t num, int add, const int panels)
{
    int64_t i = 0;
#define HG_SOME_ROWS(rows, ahead)                                                                                           \
    multiply_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, panel, bias, ahead, depth, num, add, rows, panels)
    for (; i + HG_HEIGHT <= rows; i += HG_HEIGHT)
        HG_SOME_ROWS(HG_HEIGHT, panel + panels * (HG_PANEL + i / HG_HEIGHT * HG_LINES_AHEAD) * depth);
    if (i + 4 <= rows) {
        HG_SOME_ROWS(4, panel);
        i += 4;
    }
    for (; i < rows; i++)
        HG_SOME_ROWS(1, panel);
}

static void multiply(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *panel, const float *bias,
                     int64_t rows, int64_t depth, int64_t num, int add)
{
    if (num > HG_PANEL)
        multiply_panels(y, y_stride, x, x_stride, panel, bias, rows, depth, num, add, HG_ABREAST);
    else
        multiply_panels(y, y_stride, x, x_stride, panel, bias, rows, depth, num, add, 1);
}

/* `num` columns of x, and `panels` panels, constants. The rows' sum is made by itself first, which loses fewer digits than
 * adding each row. */
HG_INLINE void multiply_columns(float *sums, int64_t sums_apart, const float *x, int64_t x_stride, const float *right,
                                int64_t apart, int64_t stride, int64_t rows, const int num, const int panels)
{
    product_unit total[HG_HEIGHT][HG_ABREAST * HG_UNITS] = {{{0}}};
    for (int64_t k = 0; k < rows; k++) {
        __builtin_prefetch(x + k * x_stride + num);
        add_products(total, x + k * x_stride, 1, right + k * stride, apart, num, panels);
    }
    HG_UNROLL
    for (int i = 0; i < num; i++) {
        HG_UNROLL
        for (int u = 0; u < panels * HG_UNITS; u++)
            HG_UNIT(sums + i * HG_PANEL + u / HG_UNITS * sums_apart, u % HG_UNITS) += total[i][u];
    }
}

HG_INLINE void multiply_transposed_panels(float *sums, int64_t sums_apart, const float *x, int64_t x_stride,
                                          const float *right, int64_t apart, int64_t stride, int64_t rows, int64_t depth,
                                          const int panels)
{
    int64_t d = 0;
#define HG_SOME_COLUMNS(num)                                                                                                \
    multiply_columns(sums + d * HG_PANEL, sums_apart, x + d, x_stride, right, apart, stride, rows, num, panels)
    for (; d + HG_HEIGHT <= depth; d += HG_HEIGHT)
        HG_SOME_COLUMNS(HG_HEIGHT);
    if (d + 4 <= depth) {
        HG_SOME_COLUMNS(4);
        d += 4;
    }
    for (; d < depth; d++)
        HG_SOME_COLUMNS(1);
}

static void multiply_transposed(float *sums, int64_t sums_apart, const float *x, int64_t x_stride, const float *right,
                                int64_t apart, int64_t stride, int64_t rows, int64_t depth, int64_t num)
{
    if (num > HG_PANEL)
        multiply_transposed_panels(sums, sums_apart, x, x_stride, right, apart, stride, rows, depth, HG_ABREAST);
    else
        multiply_transposed_panels(sums, sums_apart, x, x_stride, right, apart, stride, rows, depth, 1);
}

static void widen(float *to, int64_t stride, const uint16_t *x, int64_t x_stride, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i++) {
        float *restrict row = to + i * stride;
        for (int64_t c = 0; c < depth; c++)
            row[c] = hg_float_of_bf16(x[i * x_stride + c]);
    }
}
