/* Template: the rows of a block, with units of HG_LANES columns. Undefines HG_LANES at its end.
 *
 * Rows are added four edges at a time into sums that stay in the L1 cache, each streamed row being read once from end
 * to end (see gather_wide.h for why). Backwards the same reading of gy serves gz += m alpha gy and the dots <gy, z>,
 * since alpha comes from lse and needs no dot.
 *
 * Where a head is a whole number of units the sums are the rows of the result themselves (backwards in a complete block,
 * which may still need them, a thread's own memory). Otherwise they are padded, each head to whole units: the last unit is
 * parked behind the others, though it overlaps them in the result.
 * Overlapping columns are then summed twice, equally; in the dots they would count twice, so there z is 0 in the
 * second copy.
 */
HG_INLINE void HG_IN_UNITS(pad)(const hg_attention_args *a, HG_E *padded, const HG_E *row, const int zero_overlap)
{
    const int64_t width = a->head_width, units = HG_PADDED(width) / HG_LANES, overlap = units * HG_LANES - width;
    for (int64_t h = 0; h < a->heads; h++, row += width, padded += units * HG_LANES) {
        for (int64_t u = 0; u < units; u++)
            *(HG_IN_UNITS(loose) *)(padded + u * HG_LANES) = *(const HG_IN_UNITS(loose) *)(row + HG_COLUMN(u));
        for (int64_t c = 0; zero_overlap && c < overlap; c++)
            padded[(units - 1) * HG_LANES + c] = 0;
    }
}

HG_INLINE void HG_IN_UNITS(unpad)(const hg_attention_args *a, HG_E *row, const HG_E *padded)
{
    const int64_t width = a->head_width, units = HG_PADDED(width) / HG_LANES;
    for (int64_t h = 0; h < a->heads; h++, row += width, padded += units * HG_LANES)
        for (int64_t u = 0; u < units; u++)
            *(HG_IN_UNITS(loose) *)(row + HG_COLUMN(u)) = *(const HG_IN_UNITS(loose) *)(padded + u * HG_LANES);
}

/* What y less the bias is of a destination whose only edge comes from a row z: z' = m z, plus bias, less bias, rounded
 * as y is; in padded columns. */
HG_INLINE const HG_E *HG_IN_UNITS(alone)(const hg_attention_args *a, const hg_attention_scratch *s, const HG_E *z)
{
    const int64_t columns = a->heads * HG_PADDED(a->head_width);
    const int padded = a->head_width % HG_LANES != 0;
    const HG_E *bias = (const HG_E *)a->bias, scale = (HG_E)a->scale;
    HG_E *alone = (HG_E *)s->z;
    if (padded) {
        HG_IN_UNITS(pad)(a, alone, z, 1);
        z = alone;
    }
    if (padded && bias) {
        HG_IN_UNITS(pad)(a, (HG_E *)s->bias, bias, 1);
        bias = (const HG_E *)s->bias;
    }
    if (a->row_ids) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < columns; c++)
            alone[c] = scale * z[c];
        __asm__ volatile("" : : : "memory");    /* the product is rounded before the bias is added */
        z = alone;
    }
    if (bias) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < columns; c++)
            alone[c] = (z[c] + bias[c]) - bias[c];
    }
    return alone;
}

/* Streamed rows of num edges from e on, and of those so far ahead that what is between fills the memory's queues. */
HG_INLINE void HG_IN_UNITS(find)(const hg_attention_args *a, int64_t e, const int num, int64_t ahead, int64_t readable,
                                 const HG_E **row, const HG_E **next)
{
    const HG_E *streamed = (const HG_E *)a->streamed;
    HG_UNROLL
    for (int k = 0; k < num; k++) {
        row[k] = streamed + a->indices[e + k] * a->streamed_stride;
        next[k] = e + ahead + k < readable ? streamed + a->indices[e + ahead + k] * a->streamed_stride : row[k];
    }
}

/* The same, where edges' data may have made them anew: t is the place of edge e in its tile. */
HG_INLINE void HG_IN_UNITS(find_made)(const hg_attention_args *a, const hg_attention_scratch *s, int64_t e, int64_t t,
                                      const int num, int64_t ahead, int64_t readable, const HG_E **row, const HG_E **next)
{
    if (!s->rows) {
        HG_IN_UNITS(find)(a, e, num, ahead, readable, row, next);
        return;
    }
    HG_UNROLL
    for (int k = 0; k < num; k++)
        row[k] = next[k] = (const HG_E *)s->rows + (t + k) * hg_made_width(a);
}

/* The lines of the rows to come that start within the columns [from, to). */
HG_INLINE void HG_IN_UNITS(prefetch)(const HG_E **next, const int num, int64_t from, int64_t to)
{
    const int64_t line = 64 / sizeof(HG_E);
    for (int64_t c = (from + line - 1) / line * line; c < to; c += line) {
        HG_UNROLL
        for (int k = 0; k < num; k++)
            __builtin_prefetch(next[k] + c);
    }
}

/* sums += coefficient[k] * row[k] for `num` edges, the first of them being t of its tile. */
HG_INLINE void HG_IN_UNITS(forward_group)(const hg_attention_args *a, const hg_attention_scratch *s, HG_E *sums, int64_t e,
                                          int64_t t, int64_t ahead, int64_t readable, const int num, const int single)
{
    const int64_t units = single ? 1 : HG_PADDED(a->head_width) / HG_LANES, heads = a->heads, width = a->head_width;
    const HG_E *row[HG_GROUP], *next[HG_GROUP], *coefficients = (const HG_E *)s->coefficient + t * heads;
    const int kind = hg_score_kind(a);
    const int64_t value = kind == HG_SCORE_PRODUCT || kind == HG_SCORE_APART ? heads * width : 0;
    HG_IN_UNITS(find_made)(a, s, e, t, num, ahead, readable, row, next);
    for (int64_t h = 0; h < heads; h++, sums += units * HG_LANES) {
        HG_E coefficient[HG_GROUP];
        if (!a->score)
            HG_IN_UNITS(prefetch)(next, num, h * width, (h + 1) * width);
        HG_UNROLL
        for (int k = 0; k < num; k++)
            coefficient[k] = coefficients[k * heads + h];
        for (int64_t u = 0; u < units; u++) {
            HG_IN_UNITS(vec) sum = *(const HG_IN_UNITS(loose) *)(sums + u * HG_LANES);
            const int64_t at = value + h * width + HG_COLUMN(u);
            HG_UNROLL
            for (int k = 0; k < num; k++)
                sum += coefficient[k] * *(const HG_IN_UNITS(loose) *)(row[k] + at);
            *(HG_IN_UNITS(loose) *)(sums + u * HG_LANES) = sum;
        }
    }
}

/* The same for gz, with the dots of each row and z'. */
HG_INLINE void HG_IN_UNITS(backward_group)(const hg_attention_args *a, const hg_attention_scratch *s, HG_E *sums,
                                           const HG_E *z, int64_t e, int64_t t, int64_t ahead, int64_t readable,
                                           const int num, const int single)
{
    const int64_t units = single ? 1 : HG_PADDED(a->head_width) / HG_LANES, heads = a->heads, width = a->head_width;
    const HG_E *row[HG_GROUP], *next[HG_GROUP], *coefficients = (const HG_E *)s->coefficient + t * heads;
    HG_IN_UNITS(find)(a, e, num, ahead, readable, row, next);
    for (int64_t h = 0; h < heads; h++, sums += units * HG_LANES, z += units * HG_LANES) {
        const int64_t start = a->shared ? 0 : h * width;
        HG_E coefficient[HG_GROUP];
        HG_IN_UNITS(vec) dot[HG_GROUP] = {0};
        if (!a->shared || h == 0)
            HG_IN_UNITS(prefetch)(next, num, start, start + width);
        HG_UNROLL
        for (int k = 0; k < num; k++)
            coefficient[k] = coefficients[k * heads + h];
        for (int64_t u = 0; u < units; u++) {
            HG_IN_UNITS(vec) sum = *(const HG_IN_UNITS(loose) *)(sums + u * HG_LANES);
            const HG_IN_UNITS(vec) own = *(const HG_IN_UNITS(loose) *)(z + u * HG_LANES);
            const int64_t at = start + HG_COLUMN(u);
            HG_UNROLL
            for (int k = 0; k < num; k++) {
                const HG_IN_UNITS(vec) gy = *(const HG_IN_UNITS(loose) *)(row[k] + at);
                sum += coefficient[k] * gy;
                dot[k] += gy * own;
            }
            *(HG_IN_UNITS(loose) *)(sums + u * HG_LANES) = sum;
        }
        HG_IN_UNITS(sum_lanes)((HG_E *)s->dots + t * heads + h, heads, dot, num);
    }
}

#include "score_rows.h"

/* Groups of a tile: fours, then what is left. */
#define HG_GROUPS(call)                                                                                                \
    int64_t t = 0;                                                                                                     \
    for (; t + HG_GROUP <= num; t += HG_GROUP)                                                                         \
        call(HG_GROUP);                                                                                                \
    if (t + 2 <= num) {                                                                                                \
        call(2);                                                                                                       \
        t += 2;                                                                                                        \
    }                                                                                                                  \
    if (t < num)                                                                                                       \
        call(1);

/* Edges ahead, by the bytes of a streamed row. */
#define HG_AHEAD(bytes) ((bytes) >= 1024 ? HG_GROUP : (bytes) >= 512 ? 2 * HG_GROUP : 3 * HG_GROUP)

HG_INLINE void HG_IN_UNITS(forward_row)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,
                                        int64_t last, HG_E *y, HG_E *maximum, HG_E *denominator, const int single)
{
    const int padded = !single && a->head_width % HG_LANES != 0;
    const int64_t readable = a->indptr[a->num_rows], head = HG_PADDED(a->head_width);
    const int64_t ahead = HG_AHEAD(a->heads * a->head_width * (int64_t)sizeof(HG_E));
    HG_E *sums = padded ? (HG_E *)s->sums : y;
    if (padded)
        HG_IN_UNITS(pad)(a, sums, y, 0);
    for (int64_t e = first; e < last; e += HG_TILE) {
        const int64_t num = last - e < HG_TILE ? last - e : HG_TILE;
        if (a->score)
            HG_IN_UNITS(scores)(a, s, (const HG_E *)a->own + (a->rows ? a->rows[i] : i) * a->own_stride, NULL, e, num);
        if (HG_T(forward_weights)(a, s, i, e, num, maximum, denominator))
            for (int64_t h = 0; h < a->heads; h++) {
                const HG_E factor = ((const HG_E *)s->factor)[h];
                for (int64_t c = h * head; c < (h + 1) * head; c += HG_LANES)
                    *(HG_IN_UNITS(loose) *)(sums + c) *= factor;
            }
#define HG_OF_EDGES(n) HG_IN_UNITS(forward_group)(a, s, sums, e + t, t, ahead, readable, n, single)
        HG_GROUPS(HG_OF_EDGES)
#undef HG_OF_EDGES
    }
    if (padded)
        HG_IN_UNITS(unpad)(a, y, sums);
}

HG_INLINE void HG_IN_UNITS(backward_row)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,
                                         int64_t last, HG_E *gz, HG_E *ga_src, HG_E *gradient, int64_t stride,
                                         const int single)
{
    const int padded = !single && a->head_width % HG_LANES != 0;
    const int64_t readable = a->indptr[a->num_rows], r = a->rows ? a->rows[i] : i;
    const int64_t ahead = HG_AHEAD((a->shared ? 1 : a->heads) * a->head_width * (int64_t)sizeof(HG_E));
    HG_E *sums = padded || a->complete ? (HG_E *)s->sums : gz, *ga = a->complete ? (HG_E *)s->factor : ga_src;
    const HG_E *z = (const HG_E *)a->own + r * a->own_stride;
    if (a->complete) {                  /* gz and ga_src may be z and a_src themselves, until the row is done */
        memset(sums, 0, (size_t)(a->heads * HG_PADDED(a->head_width)) * sizeof *sums);
        memset(ga, 0, (size_t)a->heads * sizeof *ga);
    } else if (padded)
        HG_IN_UNITS(pad)(a, sums, gz, 0);
    if (padded || a->row_ids || a->bias)
        z = HG_IN_UNITS(alone)(a, s, z);
    for (int64_t e = first; e < last; e += HG_TILE) {
        const int64_t num = last - e < HG_TILE ? last - e : HG_TILE;
        HG_T(backward_weights)(a, s, i, e, num);
#define HG_OF_EDGES(n) HG_IN_UNITS(backward_group)(a, s, sums, z, e + t, t, ahead, readable, n, single)
        HG_GROUPS(HG_OF_EDGES)
#undef HG_OF_EDGES
        HG_T(backward_finish)(a, s, num, ga, gradient + e * stride, stride);
    }
    if (padded)
        HG_IN_UNITS(unpad)(a, gz, sums);
    else if (a->complete)
        memcpy(gz, sums, (size_t)(a->heads * a->head_width) * sizeof *gz);
    if (a->complete)
        memcpy(ga_src, ga, (size_t)a->heads * sizeof *ga);
}

/* Heads of a single unit, as narrow ones are, have code of their own, without the loop over units. */
#define HG_BY_UNITS(row, ...)                                                                                          \
    {                                                                                                                  \
        if (a->head_width == HG_LANES)                                                                                 \
            row(__VA_ARGS__, 1);                                                                                       \
        else                                                                                                           \
            row(__VA_ARGS__, 0);                                                                                       \
    }

static __attribute__((noinline)) void HG_IN_UNITS(forward_rows)(const hg_attention_args *a, hg_attention_scratch *s,
                                                                int64_t first, int64_t last)
{
    const int64_t bytes = a->heads * a->head_width * (int64_t)sizeof(HG_E);
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = a->indptr[i], end = a->indptr[i + 1], r = a->rows ? a->rows[i] : i;
        if (a->rows && i + 1 < last)
            hg_prefetch_row((HG_E *)a->sums + a->rows[i + 1] * a->sums_stride, bytes);
        HG_E *y = (HG_E *)a->sums + r * a->sums_stride, *maximum = (HG_E *)a->maximum + r * a->maximum_stride;
        HG_E *denominator = (HG_E *)a->denominator + r * a->denominator_stride;
        if (end - begin > HG_HUB_EDGES)
            continue;
        if (a->complete)
            HG_T(begin_row)(a, y, maximum, denominator);
        if (begin < end)
            HG_BY_UNITS(HG_IN_UNITS(forward_row), a, s, i, begin, end, y, maximum, denominator)
        if (a->complete)
            HG_T(end_row)(a, y, maximum, denominator);
    }
}

static __attribute__((noinline)) void HG_IN_UNITS(forward_chunk)(const hg_attention_args *a, hg_attention_scratch *s,
                                                                 int64_t i, int64_t first, int64_t last, void *partial)
{
    const int64_t heads = a->heads, width = heads * a->head_width;
    HG_E *y = (HG_E *)partial;
    for (int64_t c = 0; c < width + 2 * heads; c++)
        y[c] = c < width || c >= width + heads ? 0 : (HG_E)-__builtin_inf();
    HG_BY_UNITS(HG_IN_UNITS(forward_row), a, s, i, first, last, y, y + width, y + width + heads)
}

static __attribute__((noinline)) void HG_IN_UNITS(backward_rows)(const hg_attention_args *a, hg_attention_scratch *s,
                                                                 int64_t first, int64_t last, void *gradient,
                                                                 int64_t stride)
{
    const int64_t bytes = a->heads * a->head_width * (int64_t)sizeof(HG_E);
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = a->indptr[i], end = a->indptr[i + 1], r = a->rows ? a->rows[i] : i;
        if (i + 1 < last) {
            const int64_t next = a->rows ? a->rows[i + 1] : i + 1;
            if (!a->complete)
                hg_prefetch_row((HG_E *)a->sums + next * a->sums_stride, bytes);
            hg_prefetch_row((HG_E *)a->own + next * a->own_stride, bytes + a->heads * (int64_t)sizeof(HG_E));
        }
        if ((begin < end || a->complete) && end - begin <= HG_HUB_EDGES)
            HG_BY_UNITS(HG_IN_UNITS(backward_row), a, s, i, begin, end, (HG_E *)a->sums + r * a->sums_stride,
                      (HG_E *)a->ga_src + r * a->ga_src_stride, (HG_E *)gradient, stride)
    }
}

static __attribute__((noinline)) void HG_IN_UNITS(backward_chunk)(const hg_attention_args *a, hg_attention_scratch *s,
                                                                  int64_t i, int64_t first, int64_t last, void *partial,
                                                                  void *gradient, int64_t stride)
{
    const int64_t width = a->heads * a->head_width;
    HG_E *gz = (HG_E *)partial;
    for (int64_t c = 0; c < width + a->heads; c++)
        gz[c] = 0;
    HG_BY_UNITS(HG_IN_UNITS(backward_row), a, s, i, first, last, gz, gz + width, (HG_E *)gradient, stride)
}

#undef HG_GROUPS
#undef HG_AHEAD
#undef HG_BY_UNITS
