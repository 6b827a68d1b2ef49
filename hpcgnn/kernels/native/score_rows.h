/* Template, a part of units.h: attention whose scores are made of whole rows, a head at a time. Of a destination's row x and
 * a source's row z it is <attention, LeakyReLU(x + z)> (GATv2), or <x, z> with the values behind z (transformers). Where the
 * data of edges take part, z is a row that attention_edges.h has made for the edge.
 *
 * Heads are not padded. In the last unit of a head, the columns that it shares with the one before are 0 in one factor of all
 * products that are summed.
 */
#if HG_LANES > 1
HG_INLINE HG_IN_UNITS(vec) HG_IN_UNITS(once)(HG_IN_UNITS(vec) v, int64_t shared)
{
    const HG_IN_UNITS(lanes) lane = {HG_JOIN(HG_LANES_, HG_LANES)(HG_ITSELF)};
    const HG_IN_UNITS(vec) zero = {0};
    return HG_PICK(lane >= (HG_I)shared, v, zero);
}
#define HG_ONCE(v) (u + 1 == units && shared ? HG_IN_UNITS(once)(v, shared) : (v))
#else
#define HG_ONCE(v) (v)
#endif
HG_INLINE HG_IN_UNITS(vec) HG_IN_UNITS(at)(const HG_E *p)
{
    return *(const HG_IN_UNITS(loose) *)p;
}
#define HG_AT(p, c) HG_IN_UNITS(at)((p) + (c))
#define HG_ADD(p, c, v) (*(HG_IN_UNITS(loose) *)((p) + (c)) = HG_AT(p, c) + (v))
#define HG_OF_ROWS                                                                                                     \
    const int64_t heads = a->heads, width = a->head_width, units = HG_PADDED(width) / HG_LANES;                        \
    const int product = kind == HG_SCORE_PRODUCT, apart = product || kind == HG_SCORE_APART;                           \
    const int64_t shared = units * HG_LANES - width;                                                                   \
    const int64_t value = apart ? heads * width : 0;                                                                   \
    const HG_IN_UNITS(vec) zero = {0}, one = zero + 1, below = zero + (HG_E)a->slope;                                  \
    (void)shared, (void)value, (void)one, (void)below, (void)product;

/* Scores of num edges, t being the first one's place in the tile, to coefficient; with gy <gy, m z'> of their values to dots. */
HG_INLINE void HG_IN_UNITS(score_group)(const hg_attention_args *a, const hg_attention_scratch *s, const HG_E *x,
                                        const HG_E *gy, int64_t e, int64_t t, int64_t ahead, int64_t readable, const int num,
                                        const int kind)
{
    HG_OF_ROWS
    const HG_E *row[HG_GROUP], *next[HG_GROUP], *attention = (const HG_E *)a->attention;
    const HG_E scale = (HG_E)a->scale;
    HG_IN_UNITS(find_made)(a, s, e, t, num, ahead, readable, row, next);
    for (int64_t h = 0; h < heads; h++) {
        HG_IN_UNITS(vec) score[HG_GROUP] = {0}, dot[HG_GROUP] = {0};
        if (!s->rows)
            HG_IN_UNITS(prefetch)(next, num, h * width, (h + 1) * width);
        if (!s->rows && product)
            HG_IN_UNITS(prefetch)(next, num, value + h * width, value + (h + 1) * width);
        for (int64_t u = 0; u < units; u++) {
            const int64_t at = h * width + HG_COLUMN(u);
            const HG_IN_UNITS(vec) own = kind == HG_SCORE_MIXED ? zero : HG_AT(x, at);
            const HG_IN_UNITS(vec) factor = kind == HG_SCORE_MIXED ? zero : HG_ONCE(product ? own : HG_AT(attention, at));
            const HG_IN_UNITS(vec) g = gy ? HG_ONCE(HG_AT(gy, at)) : zero;
            HG_UNROLL
            for (int k = 0; k < num; k++) {
                const HG_IN_UNITS(vec) z = HG_AT(row[k], at), sum = own + z;
                if (kind != HG_SCORE_MIXED)
                    score[k] += factor * (product ? z : HG_PICK(sum > zero, sum, sum * below));
                if (gy) {
                    HG_IN_UNITS(vec) alone = apart ? HG_AT(row[k], value + at) : z;
                    if (a->row_ids) {           /* rounded as y is, where one edge outweighs the others */
                        alone *= scale;
                        HG_ROUNDED(alone);
                    }
                    dot[k] += g * alone;
                }
            }
        }
        if (kind != HG_SCORE_MIXED)
            HG_IN_UNITS(sum_lanes)((HG_E *)s->coefficient + t * heads + h, heads, score, num);
        if (gy)
            HG_IN_UNITS(sum_lanes)((HG_E *)s->dots + t * heads + h, heads, dot, num);
    }
}

/* Adds what num edges give to the gradients of the row x and of the attention vectors. */
HG_INLINE void HG_IN_UNITS(score_own)(const hg_attention_args *a, const hg_attention_scratch *s, const HG_E *x, HG_E *gx,
                                      HG_E *g_attention, int64_t e, int64_t t, const int num, const int kind)
{
    HG_OF_ROWS
    const HG_E *row[HG_GROUP], *next[HG_GROUP], *derivative = (const HG_E *)s->derivative + t * heads;
    HG_IN_UNITS(find_made)(a, s, e, t, num, 0, 0, row, next);
    for (int64_t h = 0; h < heads; h++) {
        HG_E of[HG_GROUP];
        HG_UNROLL
        for (int k = 0; k < num; k++)
            of[k] = derivative[k * heads + h];
        for (int64_t u = 0; u < units; u++) {
            const int64_t at = h * width + HG_COLUMN(u);
            const HG_IN_UNITS(vec) own = HG_AT(x, at);
            HG_IN_UNITS(vec) more = zero, along = zero;
            HG_UNROLL
            for (int k = 0; k < num; k++) {
                const HG_IN_UNITS(vec) z = HG_AT(row[k], at), sum = own + z;
                more += of[k] * (product ? z : HG_PICK(sum > zero, one, below));
                if (!product)
                    along += of[k] * HG_PICK(sum > zero, sum, sum * below);
            }
            if (!product) {
                more *= HG_AT((const HG_E *)a->attention, at);
                HG_ADD(g_attention, at, HG_ONCE(along));
            }
            HG_ADD(gx, at, HG_ONCE(more));
        }
    }
}

/* Adds what edges give to the rows that return: `order` (NULL: all) of num edges from `first` on, whose coefficients,
 * derivatives and own rows (NULL: all r) begin at theirs. */
HG_INLINE void HG_IN_UNITS(return_rows)(const hg_attention_args *a, hg_attention_scratch *s, const HG_E *coefficients,
                                        const HG_E *derivatives, const int32_t *rows, int64_t r, int64_t first,
                                        const int32_t *order, int64_t num, const int kind)
{
    HG_OF_ROWS
    const int32_t *to = (a->returns ? a->returns : a->indices) + first, *from = a->indices + first;
    HG_E *back = (HG_E *)a->ga_dst;
    for (int64_t k = 0; k < num; k++) {
        const int64_t e = order ? order[k] : k, own = rows ? rows[e] : r;
        const HG_E *coefficient = coefficients + e * heads, *derivative = derivatives + e * heads;
        const HG_E *x = (const HG_E *)a->own + own * a->own_stride, *gy = (const HG_E *)a->gy + own * a->gy_stride;
        const HG_E *z = (const HG_E *)a->streamed + from[e] * a->streamed_stride;
        HG_E *g = back + to[e] * a->ga_dst_stride;
        if (k + 2 < num)
            hg_prefetch_row(back + to[order ? order[k + 2] : k + 2] * a->ga_dst_stride,
                            (kind == HG_SCORE_MIXED ? 512 : (product ? 2 : 1) * heads * width * (int64_t)sizeof(HG_E)));
        if (kind == HG_SCORE_MIXED) {
            HG_T(return_mixed)(a, first + e, coefficient, derivative, gy, g);
            continue;
        }
        if (kind == HG_SCORE_APART)
            z = HG_T(made_row)(a, first + e, k + 1 < num ? first + (order ? order[k + 1] : k + 1) : -1, (HG_E *)s->rows);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t u = 0; u < units; u++) {
                const int64_t at = h * width + HG_COLUMN(u);
                const HG_IN_UNITS(vec) own_row = HG_AT(x, at), more = coefficient[h] * HG_ONCE(HG_AT(gy, at));
                if (product) {
                    HG_ADD(g, at, derivative[h] * HG_ONCE(own_row));
                    HG_ADD(g, value + at, more);
                } else {
                    const HG_IN_UNITS(vec) weight = HG_ONCE(HG_AT((const HG_E *)a->attention, at));
                    const HG_IN_UNITS(vec) slope = HG_PICK(own_row + HG_AT(z, at) > zero, one, below);
                    HG_ADD(g, at, more + derivative[h] * (weight * slope));
                }
            }
    }
}

/* D = <gy, y> of a row's heads, summed as the dots are. */
HG_INLINE void HG_IN_UNITS(score_shift)(const hg_attention_args *a, HG_E *out, const HG_E *gy, const HG_E *y)
{
    const int kind = HG_SCORE_SUM;
    HG_OF_ROWS
    for (int64_t h = 0; h < heads; h++) {
        HG_IN_UNITS(vec) dot[HG_GROUP] = {0};
        for (int64_t u = 0; u < units; u++) {
            const int64_t at = h * width + HG_COLUMN(u);
            dot[0] += HG_ONCE(HG_AT(gy, at)) * HG_AT(y, at);
        }
        HG_IN_UNITS(sum_lanes)(out + h, 1, dot, 1);
    }
}

#define HG_GROUPS(kind)                                                                                                \
    for (; t + HG_GROUP <= num; t += HG_GROUP)                                                                         \
        HG_OF_EDGES(HG_GROUP, kind);                                                                                   \
    for (; t < num; t++)                                                                                               \
        HG_OF_EDGES(1, kind)
/* The kind is a constant in each case. */
#define HG_BY_KIND(call)                                                                                               \
    switch (hg_score_kind(a)) {                                                                                        \
    case HG_SCORE_PRODUCT: call(HG_SCORE_PRODUCT); break;                                                              \
    case HG_SCORE_APART: call(HG_SCORE_APART); break;                                                                  \
    case HG_SCORE_MIXED: call(HG_SCORE_MIXED); break;                                                                  \
    default: call(HG_SCORE_SUM);                                                                                       \
    }

/* The scores of a tile, and the dots if gy is there. */
static __attribute__((noinline)) void HG_IN_UNITS(scores)(const hg_attention_args *a, hg_attention_scratch *s, const HG_E *x,
                                                          const HG_E *gy, int64_t e, int64_t num)
{
    const int64_t readable = a->indptr[a->num_rows], ahead = 2 * HG_GROUP;
    int64_t t = 0;
    if (a->weight)
        HG_T(made_rows)(a, s, x, e, num);
    if (a->score == HG_SCORE_MIXED && !gy)
        return;
#define HG_OF_EDGES(n, kind) HG_IN_UNITS(score_group)(a, s, x, gy, e + t, t, ahead, readable, n, kind)
    HG_BY_KIND(HG_GROUPS)
#undef HG_OF_EDGES
}

static __attribute__((noinline)) void HG_IN_UNITS(score_own_rows)(const hg_attention_args *a, hg_attention_scratch *s,
                                                                  const HG_E *x, const HG_E *gy, HG_E *gx,
                                                                  const hg_score_edges *edges, int64_t e, int64_t num)
{
    HG_E *g_attention = (HG_E *)edges->g_attention;
    int64_t t = 0;
    if (a->weight)
        HG_T(edges_own)(a, s, x, gy, gx, (HG_E *)edges->g_weight, e, num);
    if (a->score == HG_SCORE_MIXED)
        return;
#define HG_OF_EDGES(n, kind) HG_IN_UNITS(score_own)(a, s, x, gx, g_attention, e + t, t, n, kind)
    HG_BY_KIND(HG_GROUPS)
#undef HG_OF_EDGES
}

/* One function for tiles and for waves: the compiler then rounds both alike. */
static __attribute__((noinline)) void HG_IN_UNITS(score_return)(const hg_attention_args *a, hg_attention_scratch *s,
                                                                const void *coefficients, const void *derivatives,
                                                                const int32_t *rows, int64_t r, int64_t first,
                                                                const int32_t *order, int64_t num)
{
    const HG_E *coefficient = (const HG_E *)coefficients, *derivative = (const HG_E *)derivatives;
#define HG_OF_KIND(kind) HG_IN_UNITS(return_rows)(a, s, coefficient, derivative, rows, r, first, order, num, kind)
    HG_BY_KIND(HG_OF_KIND)
#undef HG_OF_KIND
}

/* Edges [first, last) of row i; gx: where its gradient is added. */
static void HG_IN_UNITS(score_row)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                                   HG_E *gx, const hg_score_edges *edges)
{
    const int64_t heads = a->heads, r = a->rows ? a->rows[i] : i;
    const HG_E *x = (const HG_E *)a->own + r * a->own_stride, *gy = (const HG_E *)a->gy + r * a->gy_stride;
    if (a->score == HG_SCORE_RELATED) {
        for (int64_t e = first; e < last; e += HG_TILE)
            HG_T(relate)(a, (HG_E *)s->z, x, gx, (HG_E *)edges->g_weight, e, hg_least(last - e, HG_TILE));
        return;
    }
    HG_IN_UNITS(score_shift)(a, (HG_E *)s->factor, gy, (const HG_E *)a->y + r * a->y_stride);
    for (int64_t e = first; e < last; e += HG_TILE) {
        const int64_t num = last - e < HG_TILE ? last - e : HG_TILE, bytes = num * heads * (int64_t)sizeof(HG_E);
        HG_IN_UNITS(scores)(a, s, x, gy, e, num);
        HG_T(score_weights)(a, s, i, e, num);
        HG_IN_UNITS(score_own_rows)(a, s, x, gy, gx, edges, e, num);
        if (!a->ga_dst)
            continue;
        if (!edges->rows) {
            HG_IN_UNITS(score_return)(a, s, s->coefficient, s->derivative, NULL, r, e, NULL, num);
            continue;
        }
        memcpy((HG_E *)edges->coefficient + (e - edges->base) * heads, s->coefficient, (size_t)bytes);
        memcpy((HG_E *)edges->derivative + (e - edges->base) * heads, s->derivative, (size_t)bytes);
        for (int64_t t = 0; t < num; t++)
            edges->rows[e - edges->base + t] = (int32_t)r;
    }
}

static __attribute__((noinline)) void HG_IN_UNITS(score_rows)(const hg_attention_args *a, hg_attention_scratch *s,
                                                              int64_t first, int64_t last, const hg_score_edges *edges)
{
    for (int64_t i = first; i < last; i++) {
        const int64_t r = a->rows ? a->rows[i] : i, num = a->indptr[i + 1] - a->indptr[i];
        HG_E *sums = (HG_E *)a->sums + r * a->sums_stride;
        if (a->complete)
            memset(sums, 0, (size_t)hg_own_width(a) * sizeof(HG_E));
        if (num && num <= HG_HUB_EDGES)
            HG_IN_UNITS(score_row)(a, s, i, a->indptr[i], a->indptr[i + 1], sums, edges);
    }
}

static __attribute__((noinline)) void HG_IN_UNITS(score_chunk)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i,
                                                               int64_t first, int64_t last, void *partial,
                                                               const hg_score_edges *edges)
{
    const size_t bytes = (size_t)hg_own_width(a) * sizeof(HG_E);
    memset(partial, 0, bytes);
    if (a->complete && first == a->indptr[i])   /* a wave's chunks are added up when all are made */
        memset((HG_E *)a->sums + i * a->sums_stride, 0, bytes);
    HG_IN_UNITS(score_row)(a, s, i, first, last, (HG_E *)partial, edges);
}

#undef HG_ONCE
#undef HG_AT
#undef HG_ADD
#undef HG_OF_ROWS
#undef HG_GROUPS
#undef HG_BY_KIND
