/* Template: the data of edges in attention by whole rows (score_rows.h). Where there are any, the rows of a tile's sources are
 * made anew before they are scored, an edge at a time:
 *
 *   [z + e W | z]                of a sum (GATv2), so that the values stand behind the keys
 *   [k + e W | v + e W]          of products (transformers)
 *   sum over b of c_b z_b        of mixed ones (relational attention), c being the row of `weight` of the edge's type. Their
 *                                logits are LeakyReLU(sum over b of c_b (own_b + half_b)), with the halves behind all z_b.
 *
 * Plain loops over columns that the compiler turns into vectors. A row is made in one function: <gy, value> and D are then
 * rounded alike (score_rows.h).
 */
HG_INLINE const HG_E *HG_T(source_of)(const hg_attention_args *a, int64_t e)
{
    return (const HG_E *)a->streamed + a->indices[e] * a->streamed_stride;
}

/* The row of an edge's data, or of mixed ones that of `weight`, whose number is then `type`. */
HG_INLINE const HG_E *HG_T(data_of)(const hg_attention_args *a, int64_t e, int64_t *type)
{
    const int64_t place = hg_place(a->places, a->place_bytes, e);
    if (a->score != HG_SCORE_MIXED)
        return (const HG_E *)a->edge + place * a->edge_stride;
    *type = ((const int32_t *)a->edge)[place];
    return (const HG_E *)a->weight + *type * a->weight_columns;
}

static __attribute__((noinline)) const HG_E *HG_T(made_row)(const hg_attention_args *a, int64_t e, int64_t ahead,
                                                            HG_E *restrict out)
{
    const int64_t width = a->heads * a->head_width;
    int64_t type;
    const HG_E *restrict z = HG_T(source_of)(a, e), *restrict of = HG_T(data_of)(a, e, &type);
    if (ahead >= 0) {
        hg_prefetch_row(HG_T(source_of)(a, ahead), hg_least(hg_made_width(a) * (int64_t)sizeof(HG_E), 1024));
        if (a->score != HG_SCORE_MIXED)
            hg_prefetch_row(HG_T(data_of)(a, ahead, &type), a->weight_rows * (int64_t)sizeof(HG_E));
    }
    if (a->score == HG_SCORE_MIXED) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] = of[0] * z[c];
        for (int64_t b = 1; b < a->weight_columns; b++) {
            const HG_E share = of[b], *restrict from = z + b * width;
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                out[c] += share * from[c];
        }
        return out;
    }
    const HG_E *restrict w = (const HG_E *)a->weight;
    HG_E *restrict value = out + width;
    int64_t k = 0;
    memset(out, 0, (size_t)width * sizeof(HG_E));
    for (; k + 4 <= a->weight_rows; k += 4, w += 4 * width) {
        const HG_E f0 = of[k], f1 = of[k + 1], f2 = of[k + 2], f3 = of[k + 3];
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] += f0 * w[c] + f1 * w[width + c] + (f2 * w[2 * width + c] + f3 * w[3 * width + c]);
    }
    for (; k < a->weight_rows; k++, w += width) {
        const HG_E f = of[k];
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] += f * w[c];
    }
    if (a->score == HG_SCORE_PRODUCT) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            value[c] = z[width + c] + out[c];
    } else {
        memcpy(value, z, (size_t)width * sizeof(HG_E));
    }
    HG_INDEPENDENT
    for (int64_t c = 0; c < width; c++)
        out[c] += z[c];
    return out;
}

/* The rows of a tile; of mixed ones also the logits, and in `other` the slopes of LeakyReLU there. x: the own row. */
static __attribute__((noinline)) void HG_T(made_rows)(const hg_attention_args *a, hg_attention_scratch *s, const HG_E *x,
                                                      int64_t e, int64_t num)
{
    const int64_t readable = a->indptr[a->num_rows], made = hg_made_width(a), heads = a->heads, bases = a->weight_columns;
    for (int64_t t = 0; t < num; t++)
        HG_T(made_row)(a, e + t, e + t + 4 < readable ? e + t + 4 : -1, (HG_E *)s->rows + t * made);
    for (int64_t t = 0; t < num && a->score == HG_SCORE_MIXED; t++) {
        int64_t type;
        const HG_E *restrict share = HG_T(data_of)(a, e + t, &type);
        const HG_E *restrict half = HG_T(source_of)(a, e + t) + bases * made;
        for (int64_t h = 0; h < heads; h++) {
            HG_E sum = 0;
            for (int64_t b = 0; b < bases; b++)
                sum += share[b] * (half[b * heads + h] + x[b * heads + h]);
            ((HG_E *)s->other)[t * heads + h] = sum > 0 ? 1 : (HG_E)a->slope;
            ((HG_E *)s->coefficient)[t * heads + h] = sum > 0 ? sum : sum * (HG_E)a->slope;
        }
    }
}

/* <x, y>, in an order that the vector path sets. */
HG_INLINE HG_E HG_T(inner)(const HG_E *restrict x, const HG_E *restrict y, int64_t num)
{
    HG_E lanes[HG_FULL] = {0}, sum = 0;
    int64_t c = 0;
    for (; c + HG_FULL <= num; c += HG_FULL)
        for (int64_t l = 0; l < HG_FULL; l++)
            lanes[l] += x[c + l] * y[c + l];
    for (int64_t l = 0; l < HG_FULL; l++)
        sum += lanes[l];
    for (; c < num; c++)
        sum += x[c] * y[c];
    return sum;
}

/* Adds what a tile gives to the gradient of `weight`, unless NULL, and of mixed ones to that of the own row x. Their
 * derivatives are then those before LeakyReLU. */
static __attribute__((noinline)) void HG_T(edges_own)(const hg_attention_args *a, hg_attention_scratch *s, const HG_E *x,
                                                      const HG_E *gy, HG_E *restrict gx, HG_E *g_weight, int64_t e, int64_t num)
{
    const int64_t heads = a->heads, each = a->head_width, width = heads * each, bases = a->weight_columns;
    const HG_E below = (HG_E)a->slope, *restrict attention = (const HG_E *)a->attention;
    HG_E *restrict along = (HG_E *)s->z;
    for (int64_t t = 0; t < num && (g_weight || a->score == HG_SCORE_MIXED); t++) {
        HG_E *restrict derivative = (HG_E *)s->derivative + t * heads;
        const HG_E *restrict coefficient = (const HG_E *)s->coefficient + t * heads;
        const HG_E *restrict key = (const HG_E *)s->rows + t * hg_made_width(a);
        int64_t type;
        const HG_E *restrict of = HG_T(data_of)(a, e + t, &type);
        for (int64_t h = 0; h < heads; h++) {
            const HG_E score = derivative[h], value = coefficient[h];
            if (a->score == HG_SCORE_MIXED)
                derivative[h] *= ((const HG_E *)s->other)[t * heads + h];
            HG_INDEPENDENT
            for (int64_t c = h * each; c < (h + 1) * each; c++)
                along[c] = a->score == HG_SCORE_MIXED     ? value * gy[c]
                           : a->score == HG_SCORE_PRODUCT ? score * x[c] + value * gy[c]
                                                          : score * (attention[c] * (x[c] + key[c] > 0 ? 1 : below));
        }
        if (a->score == HG_SCORE_MIXED) {
            const HG_E *restrict z = HG_T(source_of)(a, e + t), *restrict half = z + bases * width;
            for (int64_t b = 0; b < bases; b++) {
                HG_E sum = 0;
                for (int64_t h = 0; h < heads; h++) {
                    gx[b * heads + h] += of[b] * derivative[h];
                    sum += derivative[h] * (half[b * heads + h] + x[b * heads + h]);
                }
                if (g_weight)
                    g_weight[type * bases + b] += sum + HG_T(inner)(along, z + b * width, width);
            }
            continue;
        }
        for (int64_t k = 0; k < a->weight_rows; k++) {
            HG_E *restrict to = g_weight + k * width;
            const HG_E f = of[k];
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                to[c] += f * along[c];
        }
    }
}

/* Relational sums of a tile, in the order of their types: the rows of a type are summed first, and then added to `to` of each
 * basis by its coefficient. With g_weight, <own x of the basis, that sum> is added there. */
static __attribute__((noinline)) void HG_T(relate)(const hg_attention_args *a, HG_E *restrict sum, const HG_E *x,
                                                   HG_E *restrict to, HG_E *g_weight, int64_t e, int64_t num)
{
    const int64_t width = a->head_width, bases = a->weight_columns, readable = a->indptr[a->num_rows];
    int64_t edge[HG_TILE];
    int32_t type[HG_TILE];
    for (int64_t t = 0; t < num; t++) {
        const int32_t of = ((const int32_t *)a->edge)[hg_place(a->places, a->place_bytes, e + t)];
        int64_t k = t;
        for (; k > 0 && type[k - 1] > of; k--)
            type[k] = type[k - 1], edge[k] = edge[k - 1];
        type[k] = of, edge[k] = e + t;
        if (e + t + HG_TILE < readable)
            hg_prefetch_row(HG_T(source_of)(a, e + t + HG_TILE), hg_least(width * (int64_t)sizeof(HG_E), 1024));
    }
    for (int64_t t = 0; t < num;) {
        const int32_t of = type[t];
        memset(sum, 0, (size_t)width * sizeof(HG_E));
        for (; t < num && type[t] == of; t++) {
            const HG_E factor = ((const HG_E *)a->factors)[hg_place(a->places, a->place_bytes, edge[t])];
            const HG_E *restrict z = HG_T(source_of)(a, edge[t]);
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                sum[c] += factor * z[c];
        }
        for (int64_t b = 0; b < bases; b++, to += width) {
            const HG_E share = ((const HG_E *)a->weight)[of * bases + b];
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                to[c] += share * sum[c];
            if (g_weight)
                g_weight[of * bases + b] += HG_T(inner)(sum, x + b * width, width);
        }
        to -= bases * width;
    }
}

/* What a mixed edge returns to its source's row g, whose own destination has the gradient gy. */
HG_INLINE void HG_T(return_mixed)(const hg_attention_args *a, int64_t e, const HG_E *restrict coefficient,
                                  const HG_E *restrict derivative, const HG_E *restrict gy, HG_E *restrict g)
{
    const int64_t heads = a->heads, each = a->head_width, width = heads * each, bases = a->weight_columns;
    int64_t type;
    const HG_E *restrict share = HG_T(data_of)(a, e, &type);
    for (int64_t b = 0; b < bases; b++)
        for (int64_t h = 0; h < heads; h++) {
            const HG_E of = share[b] * coefficient[h];
            HG_INDEPENDENT
            for (int64_t c = 0; c < each; c++)
                g[b * width + h * each + c] += of * gy[h * each + c];
            g[bases * width + b * heads + h] += share[b] * derivative[h];
        }
}
