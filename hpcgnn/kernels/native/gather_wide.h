/* Template: rows too wide for registers. Four source rows at a time are added into sums that stay in the L1 cache.
 *
 * Every source row is read once, from end to end; the rows of the group to come are prefetched line by line along the
 * way. The alternative, register sums over one panel of columns after the other, visits every source row once per
 * panel: more misses of the TLB, pieces too short for the hardware's prefetch; it is slower. Per column the edges are
 * added in their order, one by one, so both give the same bits.
 */
#define HG_WIDE_GROUP 4
#define HG_WIDE_PANEL (8192 / (int64_t)sizeof(HG_A))      /* columns summed at a time: a quarter of an L1 cache */

/* Adds num_edges rows from edge e on, columns [0, width) of x, to the parked sums; `fresh` starts from zero. */
HG_INLINE void HG_TAGGED(add_rows)(HG_A *sums, const HG_X *x, int64_t width, const hg_gather_args *a, int64_t e,
                                   int64_t ahead, int64_t readable, const int num_edges, const int scaled, const int fresh)
{
    const HG_X *row[HG_WIDE_GROUP], *next[HG_WIDE_GROUP];
    HG_A coefficient[HG_WIDE_GROUP];
    HG_UNROLL
    for (int k = 0; k < num_edges; k++) {
        const int64_t j = a->indices[e + k];
        row[k] = x + j * a->x_stride;
        next[k] = e + ahead + k < readable ? x + a->indices[e + ahead + k] * a->x_stride : row[k];
        coefficient[k] = scaled && a->weight ? ((const HG_A *)a->weight)[e + k] : 1;
        if (scaled && a->source_scale)
            coefficient[k] *= ((const HG_A *)a->source_scale)[j];
    }
    const int64_t line = HG_COLUMNS * sizeof(HG_X) < 64 ? 64 / sizeof(HG_X) : HG_COLUMNS;
    int64_t c = 0;
    for (; c + line <= width; c += line) {
        HG_UNROLL
        for (int k = 0; k < num_edges; k++)
            __builtin_prefetch(next[k] + c);
        HG_UNROLL
        for (int u = 0; u < line; u += HG_COLUMNS) {
            HG_TAGGED(vec) sum[HG_VECTORS] = {0};
            if (!fresh)
                HG_TAGGED(unpark)(sum, sums + c + u);
            HG_UNROLL
            for (int k = 0; k < num_edges; k++)
                HG_TAGGED(add)(sum, row[k] + c + u, coefficient[k], scaled);
            HG_TAGGED(park)(sums + c + u, sum);
        }
    }
    HG_UNROLL
    for (int k = 0; k < num_edges; k++)
        __builtin_prefetch(next[k] + width - 1);
    /* What is left of the row: units, and a last one that ends with the row but is parked behind all others. */
    for (; c < width; c += HG_COLUMNS) {
        const int64_t at = c + HG_COLUMNS <= width ? c : width - HG_COLUMNS;
        HG_TAGGED(vec) sum[HG_VECTORS] = {0};
        if (!fresh)
            HG_TAGGED(unpark)(sum, sums + c);
        HG_UNROLL
        for (int k = 0; k < num_edges; k++)
            HG_TAGGED(add)(sum, row[k] + at, coefficient[k], scaled);
        HG_TAGGED(park)(sums + c, sum);
    }
}

/* Parked sums of the edges [first, last) over the columns [column, column + width), width >= HG_COLUMNS. */
HG_INLINE void HG_TAGGED(wide_sum)(HG_A *sums, const hg_gather_args *a, int64_t column, int64_t width, int64_t first,
                                   int64_t last, int64_t readable, const int scaled)
{
    const HG_X *x = (const HG_X *)a->x + column;
    const int64_t bytes = width * (int64_t)sizeof(HG_X);
    const int64_t ahead = bytes >= 1024 ? HG_WIDE_GROUP : bytes >= 512 ? 2 * HG_WIDE_GROUP : HG_WIDE_AHEAD;
    int64_t e = first;
    if (last - e >= HG_WIDE_GROUP) {
        HG_TAGGED(add_rows)(sums, x, width, a, e, ahead, readable, HG_WIDE_GROUP, scaled, 1);
        e += HG_WIDE_GROUP;
    } else if (last - e >= 1) {
        HG_TAGGED(add_rows)(sums, x, width, a, e, ahead, readable, 1, scaled, 1);
        e += 1;
    } else {
        memset(sums, 0, (size_t)(width + HG_COLUMNS) * sizeof(HG_A));
    }
    for (; e + HG_WIDE_GROUP <= last; e += HG_WIDE_GROUP)
        HG_TAGGED(add_rows)(sums, x, width, a, e, ahead, readable, HG_WIDE_GROUP, scaled, 0);
    if (e + 2 <= last) {
        HG_TAGGED(add_rows)(sums, x, width, a, e, ahead, readable, 2, scaled, 0);
        e += 2;
    }
    if (e < last)
        HG_TAGGED(add_rows)(sums, x, width, a, e, ahead, readable, 1, scaled, 0);
}

/* Results from parked sums. The last unit may overlap the one before, so it takes what is to be added to (with
 * accumulate) before that one is stored. */
#define HG_FINISH_UNITS(result, add_to, store)                                                                         \
    const int64_t whole = width / HG_COLUMNS * HG_COLUMNS;                                                             \
    HG_TAGGED(vec) tail[HG_VECTORS] = {{0}};                                                                           \
    if (whole < width)                                                                                                 \
        HG_TAGGED(finish_unit)(tail, sums + whole, factor);                                                            \
    if (whole < width && a->accumulate)                                                                                \
        add_to(tail, result + width - HG_COLUMNS);                                                                     \
    for (int64_t c = 0; c < whole; c += HG_COLUMNS) {                                                                  \
        HG_TAGGED(vec) unit[HG_VECTORS];                                                                               \
        HG_TAGGED(finish_unit)(unit, sums + c, factor);                                                                \
        if (a->accumulate)                                                                                             \
            add_to(unit, result + c);                                                                                  \
        store(result + c, unit);                                                                                       \
    }                                                                                                                  \
    if (whole < width)                                                                                                 \
        store(result + width - HG_COLUMNS, tail);

HG_INLINE void HG_TAGGED(finish_unit)(HG_TAGGED(vec) *unit, const HG_A *sums, HG_A factor)
{
    HG_TAGGED(unpark)(unit, sums);
    HG_TAGGED(scale)(unit, factor);
}

#if HG_KIND == HG_PAIR
HG_INLINE void HG_TAGGED(add_bf16)(HG_TAGGED(vec) *unit, const uint16_t *y)
{
    HG_TAGGED(add)(unit, y, 1, 0);
}
#endif

HG_INLINE void HG_TAGGED(wide_finish)(const HG_A *sums, const hg_gather_args *a, int64_t i, int64_t column, int64_t width)
{
    const int64_t r = a->rows ? a->rows[i] : i;
    const HG_A factor = a->row_scale ? ((const HG_A *)a->row_scale)[r] : 1;
#if HG_KIND == HG_PAIR
    if (a->y_type == HG_BF16) {
        uint16_t *y = (uint16_t *)a->y + r * a->y_stride + column;
        HG_FINISH_UNITS(y, HG_TAGGED(add_bf16), HG_TAGGED(store_bf16))
        return;
    }
#endif
    HG_A *y = (HG_A *)a->y + r * a->y_stride + column;
    HG_FINISH_UNITS(y, HG_TAGGED(add_result), HG_TAGGED(store_result))
}

/* Panels of at most HG_WIDE_PANEL columns, as wide as each other give or take 64. */
#define HG_WIDE_PANELS                                                                                                 \
    const int64_t panels = (a->width + HG_WIDE_PANEL - 129) / (HG_WIDE_PANEL - 128), blocks = (a->width + 63) / 64;    \
    HG_A sums[HG_WIDE_PANEL + HG_COLUMNS] __attribute__((aligned(64)));                                                \
    for (int64_t p = 0, column = 0, end = 0; p < panels; p++, column = end)                                            \
        if ((end = p + 1 < panels ? blocks * (p + 1) / panels * 64 : a->width) > column)

static __attribute__((noinline)) void HG_TAGGED(wide_rows)(const hg_gather_args *a, int64_t first, int64_t last)
{
    const int64_t readable = a->indptr[a->num_rows], size = a->y_type == HG_BF16 ? 2 : (int64_t)sizeof(HG_A);
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = a->indptr[i], stop = a->indptr[i + 1];
        if (stop - begin > HG_HUB_EDGES || (begin == stop && a->accumulate))
            continue;
        if (a->rows && a->accumulate && i + 1 < last)
            hg_prefetch_row((const char *)a->y + a->rows[i + 1] * a->y_stride * size, a->width * size);
        HG_WIDE_PANELS {
            if (a->weight || a->source_scale)
                HG_TAGGED(wide_sum)(sums, a, column, end - column, begin, stop, readable, 1);
            else
                HG_TAGGED(wide_sum)(sums, a, column, end - column, begin, stop, readable, 0);
            HG_TAGGED(wide_finish)(sums, a, i, column, end - column);
        }
    }
}

static __attribute__((noinline)) void HG_TAGGED(wide_chunk)(const hg_gather_args *a, int64_t first, int64_t last,
                                                            void *partial)
{
    HG_WIDE_PANELS {
        const int64_t width = end - column;
        if (a->weight || a->source_scale)
            HG_TAGGED(wide_sum)(sums, a, column, width, first, last, last, 1);
        else
            HG_TAGGED(wide_sum)(sums, a, column, width, first, last, last, 0);
        for (int64_t c = 0; c < width; c += HG_COLUMNS)
            HG_TAGGED(unravel)((HG_A *)partial + column + (c + HG_COLUMNS <= width ? c : width - HG_COLUMNS), sums + c);
    }
}

#undef HG_FINISH_UNITS
#undef HG_WIDE_GROUP
#undef HG_WIDE_PANEL
#undef HG_WIDE_PANELS
