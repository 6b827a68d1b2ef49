/* Template: the attention weights of up to HG_TILE edges, before their rows are read; and the merging of hubs.
 *
 * M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022.
 * A maximum that rises costs one pass over the row's sums, at most once per tile.
 *
 * Element (t, h) of a tile stands at t * H + h. Number of heads is a constant in the common cases, so that loops over
 * heads become single vector instructions; what does not depend on the head runs over the tile as a whole.
 */
typedef HG_E HG_T(full) __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef HG_I HG_T(full_ints) __attribute__((vector_size(HG_VECTOR_BYTES)));
#define HG_FULL ((int64_t)(HG_VECTOR_BYTES / sizeof(HG_E)))
#define HG_MINUS_INFINITY ((HG_E)-__builtin_inf())
/* The end of a streamed row, which the weights are made of, is prefetched this many edges ahead. */
#define HG_WEIGHTS_AHEAD 32

HG_INLINE HG_E HG_T(exp_one)(HG_E x)
{
    HG_T(full) v = {0};
    v += x;
    return HG_T(exp)(v)[0];
}

HG_INLINE HG_T(full) HG_T(leaky)(HG_T(full) x, HG_E slope, HG_T(full) *derivative)
{
    const HG_T(full) zero = {0}, one = zero + 1, slopes = zero + slope;
    const HG_T(full_ints) positive = x > zero;
    *derivative = (HG_T(full))HG_SELECT(HG_T(full_ints), positive, one, slopes);
    return x * *derivative;
}

/* coefficient = m exp(logit - maximum); raises maximum, and returns whether sums must be multiplied by s->factor. */
HG_INLINE int HG_T(forward_tile)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t e, int64_t num,
                                 const HG_E *restrict a_dst, HG_E *restrict maximum, HG_E *restrict denominator,
                                 const int64_t heads)
{
    const int64_t width = a->heads * a->head_width, readable = a->indptr[a->num_rows];
    const HG_E *streamed = (const HG_E *)a->streamed + width;
    HG_E *restrict logit = (HG_E *)s->coefficient, *restrict factor = (HG_E *)s->factor;
    for (int64_t t = 0; t < num; t++) {
        if (e + t + HG_WEIGHTS_AHEAD < readable)
            __builtin_prefetch(streamed + a->indices[e + t + HG_WEIGHTS_AHEAD] * a->streamed_stride);
        const HG_E *restrict a_src = streamed + a->indices[e + t] * a->streamed_stride;
        for (int64_t h = 0; h < heads; h++)
            logit[t * heads + h] = a_dst[h] + a_src[h];
    }
    if (a->edge_term)
        for (int64_t t = 0; t < num; t++) {
            const HG_E *restrict term = (const HG_E *)a->edge_term + (e + t) * a->edge_stride;
            for (int64_t h = 0; h < heads; h++)
                logit[t * heads + h] += term[h];
        }
    for (int64_t k = 0; k < num * heads; k += HG_FULL) {
        HG_T(full) derivative;
        *(HG_T(full) *)(logit + k) = HG_T(leaky)(*(HG_T(full) *)(logit + k), (HG_E)a->slope, &derivative);
    }
    int rescale = 0;
    for (int64_t h = 0; h < heads; h++)
        factor[h] = maximum[h];
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++)
            factor[h] = logit[t * heads + h] > factor[h] ? logit[t * heads + h] : factor[h];
    for (int64_t h = 0; h < heads; h++) {
        const HG_E before = maximum[h];
        maximum[h] = factor[h];
        factor[h] = factor[h] > before && before > HG_MINUS_INFINITY ? HG_T(exp_one)(before - factor[h]) : 1;
        rescale |= factor[h] != 1;
        denominator[h] *= factor[h];
    }
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++)     /* -inf - -inf would be NaN: only logits of -inf so far */
            logit[t * heads + h] -= maximum[h] > HG_MINUS_INFINITY ? maximum[h] : 0;
    for (int64_t k = 0; k < num * heads; k += HG_FULL)
        *(HG_T(full) *)(logit + k) = HG_T(exp)(*(HG_T(full) *)(logit + k));
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++)
            denominator[h] += logit[t * heads + h];
    if (a->row_ids) {
        const int64_t per_edge = (heads + 3) / 4 * 4;
        const HG_E scale = (HG_E)a->scale;
        edge_words(a, s, i, e, num, 1);
        for (int64_t t = 0; t < num; t++)
            for (int64_t h = 0; h < heads; h++)
                logit[t * heads + h] *= s->words[t * per_edge + h] >= a->threshold ? scale : 0;
    }
    return rescale;
}

/* coefficient = m alpha, shift = alpha D, derivative = that of the leaky ReLU. a_src is the row's own. */
HG_INLINE void HG_T(backward_tile)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t e,
                                   int64_t num, const HG_E *restrict a_src, const int64_t heads)
{
    const int64_t width = a->shared ? a->head_width : a->heads * a->head_width, readable = a->indptr[a->num_rows];
    const HG_E *streamed = (const HG_E *)a->streamed + width;
    HG_E *restrict coefficient = (HG_E *)s->coefficient, *restrict shift = (HG_E *)s->shift;
    HG_E *restrict derivative = (HG_E *)s->derivative, *restrict lse = (HG_E *)s->other;
    for (int64_t t = 0; t < num; t++) {
        if (e + t + HG_WEIGHTS_AHEAD < readable) {
            const HG_E *ahead = streamed + a->indices[e + t + HG_WEIGHTS_AHEAD] * a->streamed_stride;
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 3 * heads - 1);
        }
        const HG_E *restrict tail = streamed + a->indices[e + t] * a->streamed_stride;
        for (int64_t h = 0; h < heads; h++)
            coefficient[t * heads + h] = tail[h] + a_src[h];
        for (int64_t h = 0; h < heads; h++)
            lse[t * heads + h] = tail[heads + h];
        for (int64_t h = 0; h < heads; h++)
            shift[t * heads + h] = tail[2 * heads + h];
    }
    if (a->edge_term)
        for (int64_t t = 0; t < num; t++) {
            const HG_E *restrict term = (const HG_E *)a->edge_term + (e + t) * a->edge_stride;
            for (int64_t h = 0; h < heads; h++)
                coefficient[t * heads + h] += term[h];
        }
    for (int64_t k = 0; k < num * heads; k += HG_FULL) {
        HG_T(full) slopes;
        const HG_T(full) logit = HG_T(leaky)(*(HG_T(full) *)(coefficient + k), (HG_E)a->slope, &slopes);
        const HG_T(full) alpha = HG_T(exp)(logit - *(HG_T(full) *)(lse + k));
        *(HG_T(full) *)(derivative + k) = slopes;
        *(HG_T(full) *)(coefficient + k) = alpha;
        *(HG_T(full) *)(shift + k) *= alpha;
    }
    if (a->row_ids) {
        const int64_t per_edge = (heads + 3) / 4 * 4;
        const HG_E scale = (HG_E)a->scale;
        edge_words(a, s, i, e, num, 0);
        for (int64_t t = 0; t < num; t++)
            for (int64_t h = 0; h < heads; h++)
                coefficient[t * heads + h] *= s->words[t * per_edge + h] >= a->threshold ? scale : 0;
    }
}

/* gradient of the logits from the dots <gy, z>, which include neither alpha nor the mask; adds them to ga_src. */
HG_INLINE void HG_T(backward_logits)(hg_attention_scratch *s, int64_t num, HG_E *restrict ga_src,
                                     HG_E *restrict gradient, int64_t stride, const int64_t heads)
{
    const HG_E *restrict coefficient = (const HG_E *)s->coefficient, *restrict shift = (const HG_E *)s->shift;
    const HG_E *restrict derivative = (const HG_E *)s->derivative;
    HG_E *restrict dots = (HG_E *)s->dots;
    for (int64_t k = 0; k < num * heads; k++)
        dots[k] = (coefficient[k] * dots[k] - shift[k]) * derivative[k];
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++) {
            gradient[t * stride + h] = dots[t * heads + h];
            ga_src[h] += dots[t * heads + h];
        }
}

#define HG_HEADS(call)                                                                                                 \
    switch (a->heads) {                                                                                                \
    case 1: call(1); break;                                                                                            \
    case 2: call(2); break;                                                                                            \
    case 4: call(4); break;                                                                                            \
    case 8: call(8); break;                                                                                            \
    default: call(a->heads);                                                                                           \
    }

static __attribute__((noinline)) int HG_T(forward_weights)(const hg_attention_args *a, hg_attention_scratch *s,
                                                           int64_t i, int64_t e, int64_t num, HG_E *maximum,
                                                           HG_E *denominator)
{
    const HG_E *a_dst = (const HG_E *)a->own + (a->rows ? a->rows[i] : i) * a->own_stride;
#define HG_CALL(heads) return HG_T(forward_tile)(a, s, i, e, num, a_dst, maximum, denominator, heads)
    HG_HEADS(HG_CALL)
#undef HG_CALL
}

static __attribute__((noinline)) void HG_T(backward_weights)(const hg_attention_args *a, hg_attention_scratch *s,
                                                             int64_t i, int64_t e, int64_t num)
{
    const int64_t r = a->rows ? a->rows[i] : i;
    const HG_E *a_src = (const HG_E *)a->own + r * a->own_stride + a->heads * a->head_width;
#define HG_CALL(heads) HG_T(backward_tile)(a, s, i, e, num, a_src, heads)
    HG_HEADS(HG_CALL)
#undef HG_CALL
}

static __attribute__((noinline)) void HG_T(backward_finish)(const hg_attention_args *a, hg_attention_scratch *s,
                                                            int64_t num, HG_E *ga_src, HG_E *gradient, int64_t stride)
{
#define HG_CALL(heads) HG_T(backward_logits)(s, num, ga_src, gradient, stride, heads)
    HG_HEADS(HG_CALL)
#undef HG_CALL
}

static void HG_T(forward_merge)(const hg_attention_args *a, int64_t i, const void *partial, int64_t num)
{
    const int64_t heads = a->heads, width = a->head_width, r = a->rows ? a->rows[i] : i;
    HG_E *y = (HG_E *)a->sums + r * a->sums_stride, *maximum = (HG_E *)a->maximum + r * a->maximum_stride;
    HG_E *denominator = (HG_E *)a->denominator + r * a->denominator_stride;
    for (int64_t k = 0; k < num; k++) {
        const HG_E *sums = (const HG_E *)partial + k * heads * (width + 2);
        for (int64_t h = 0; h < heads; h++) {
            const HG_E there = sums[heads * width + h], here = maximum[h], top = there > here ? there : here;
            /* Where a maximum is -inf the sums are 0 (or NaN, which is to stay). */
            const HG_E old = here > HG_MINUS_INFINITY ? HG_T(exp_one)(here - top) : 1;
            const HG_E new = there > HG_MINUS_INFINITY ? HG_T(exp_one)(there - top) : 1;
            maximum[h] = top;
            denominator[h] = old * denominator[h] + new * sums[heads * (width + 1) + h];
            for (int64_t c = h * width; c < (h + 1) * width; c++)
                y[c] = old * y[c] + new * sums[c];
        }
    }
}

static void HG_T(backward_merge)(const hg_attention_args *a, int64_t i, const void *partial, int64_t num)
{
    const int64_t heads = a->heads, width = heads * a->head_width, r = a->rows ? a->rows[i] : i;
    HG_E *gz = (HG_E *)a->sums + r * a->sums_stride, *ga_src = (HG_E *)a->ga_src + r * a->ga_src_stride;
    for (int64_t k = 0; k < num; k++) {
        const HG_E *sums = (const HG_E *)partial + k * (width + heads);
        for (int64_t c = 0; c < width; c++)
            gz[c] += sums[c];
        for (int64_t h = 0; h < heads; h++)
            ga_src[h] += sums[width + h];
    }
}
#undef HG_HEADS
#undef HG_FULL
#undef HG_MINUS_INFINITY
#undef HG_WEIGHTS_AHEAD
