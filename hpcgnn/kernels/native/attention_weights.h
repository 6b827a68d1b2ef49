/* Template: the attention weights of up to HG_TILE edges, before their rows are read; and the merging of hubs.
 *
 * M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022.
 * A maximum that rises costs one pass over the row's sums, at most once per tile.
 *
 * Element (t, h) of a tile stands at t * H + h, and the tile is treated a register at a time. Where H is a power of
 * two that fits a register, lane l always holds head l mod H, so that maxima and sums are formed in lanes too and
 * joined at the end; loops over heads are slower. Tiles of 16 edges are a little slower than of 32; prefetching 16, 32 or
 * 64 edges ahead makes no difference.
 */
typedef HG_E HG_T(full) __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef HG_I HG_T(full_ints) __attribute__((vector_size(HG_VECTOR_BYTES)));
#define HG_CHOICE(mask, yes, no) ((HG_T(full))HG_SELECT(HG_T(full_ints), mask, yes, no))
#define HG_AS_FULL(p) (*(HG_T(full) *)(p))
#define HG_MINUS_INFINITY ((HG_E)-__builtin_inf())
/* The end of a streamed row, which the weights are made of, is prefetched this many edges ahead. */
#define HG_WEIGHTS_AHEAD 32

HG_INLINE HG_E HG_T(exp_one)(HG_E x)
{
    HG_T(full) v = {0};
    v += x;
    return HG_T(exp)(v)[0];
}

HG_INLINE HG_T(full) HG_T(larger)(HG_T(full) a, HG_T(full) b)
{
    return HG_CHOICE(a > b, a, b);
}

/* 1 where positive, else the slope. */
HG_INLINE HG_T(full) HG_T(slopes)(HG_T(full) x, HG_E slope)
{
    const HG_T(full) zero = {0}, one = zero + 1, below = zero + slope;
    return HG_CHOICE(x > zero, one, below);
}

/* LeakyReLU. Chosen, not multiplied by 1 or the slope: a compiler may then not join the product with a difference that
 * follows, and both directions round it alike. */
HG_INLINE HG_T(full) HG_T(leaky)(HG_T(full) x, HG_E slope)
{
    const HG_T(full) zero = {0};
    return HG_CHOICE(x > zero, x, x * slope);
}

/* Lane l holds an element of head l % heads: joins those of the same head, in all lanes. `heads` a power of two. */
#define HG_STEP1(l) (((l) ^ 1) % HG_FULL)
#define HG_STEP2(l) (((l) ^ 2) % HG_FULL)
#define HG_STEP4(l) (((l) ^ 4) % HG_FULL)
#define HG_STEP8(l) (((l) ^ 8) % HG_FULL)
#define HG_FOLD(v, heads, join)                                                                                        \
    if (HG_FULL > 8 && heads <= 8) v = join(v, HG_TAKE(HG_T(full_ints), HG_FULL, v, v, HG_STEP8));                     \
    if (HG_FULL > 4 && heads <= 4) v = join(v, HG_TAKE(HG_T(full_ints), HG_FULL, v, v, HG_STEP4));                     \
    if (HG_FULL > 2 && heads <= 2) v = join(v, HG_TAKE(HG_T(full_ints), HG_FULL, v, v, HG_STEP2));                     \
    if (HG_FULL > 1 && heads <= 1) v = join(v, HG_TAKE(HG_T(full_ints), HG_FULL, v, v, HG_STEP1));
#define HG_PLUS(a, b) ((a) + (b))

HG_INLINE HG_T(full) HG_T(largest)(HG_T(full) v, const int64_t heads)
{
    HG_FOLD(v, heads, HG_T(larger))
    return v;
}

HG_INLINE HG_T(full) HG_T(total)(HG_T(full) v, const int64_t heads)
{
    HG_FOLD(v, heads, HG_PLUS)
    return v;
}

/* p[l % heads] in lane l. */
HG_INLINE HG_T(full) HG_T(each)(const HG_E *p, const int64_t heads)
{
    HG_T(full) v = {0};
    if (heads == 1)
        return v + p[0];
    HG_E lanes[HG_FULL] __attribute__((aligned(HG_VECTOR_BYTES)));
    HG_UNROLL
    for (int64_t l = 0; l < HG_FULL; l++)
        lanes[l] = p[l % heads];
    return HG_AS_FULL(lanes);
}

/* The first `num` lanes of v, and `value` in those behind. */
#define HG_ITSELF(l) (l)
HG_INLINE HG_T(full) HG_T(first)(HG_T(full) v, int64_t num, HG_E value)
{
    const HG_T(full_ints) lane = {HG_JOIN(HG_LANES_, HG_FULL)(HG_ITSELF)};
    const HG_T(full) zero = {0}, others = zero + value;
    return HG_CHOICE(lane < (HG_I)num, v, others);
}

/* s = a_dst + a_src + edge_term of a tile, `own` being the row's a_dst or a_src and the other one at the end of the
 * streamed rows; backwards lse (or the maximum) and D, which follow there, go to tiles of their own. */
HG_INLINE void HG_T(logits)(const hg_attention_args *a, hg_attention_scratch *s, const HG_E *restrict own, int64_t e,
                            int64_t num, const int64_t heads, const int forward)
{
    const int64_t width = forward || !a->shared ? a->heads * a->head_width : a->head_width;
    const int64_t readable = a->indptr[a->num_rows] - HG_WEIGHTS_AHEAD, stride = a->streamed_stride;
    const HG_E *streamed = (const HG_E *)a->streamed + width;
    const int32_t *indices = a->indices;
    HG_E *restrict logit = (HG_E *)s->coefficient, *restrict top = (HG_E *)s->other, *restrict shift = (HG_E *)s->shift;
    for (int64_t t = 0; t < num; t++) {
        const HG_E *restrict tail = streamed + indices[e + t] * stride;
        if (e + t < readable) {
            const HG_E *ahead = streamed + indices[e + t + HG_WEIGHTS_AHEAD] * stride;
            __builtin_prefetch(ahead);
            if (!forward)
                __builtin_prefetch(ahead + 3 * heads - 1);
        }
        HG_E row[8];                    /* as one or two registers, where heads is a constant */
        if (heads <= 8) {
            HG_UNROLL
            for (int64_t h = 0; h < heads; h++)
                row[h] = own[h] + tail[h];
            memcpy(logit + t * heads, row, (size_t)heads * sizeof *row);
        } else {
            for (int64_t h = 0; h < heads; h++)
                logit[t * heads + h] = own[h] + tail[h];
        }
        if (!forward) {
            memcpy(top + t * heads, tail + heads, (size_t)heads * sizeof *top);
            memcpy(shift + t * heads, tail + 2 * heads, (size_t)heads * sizeof *shift);
        }
    }
    if (a->edge_term)
        for (int64_t t = 0; t < num; t++) {
            const HG_E *restrict term = (const HG_E *)a->edge_term + (e + t) * a->edge_term_stride;
            for (int64_t h = 0; h < heads; h++)
                logit[t * heads + h] += term[h];
        }
}

/* coefficient *= 0 or 1 / (1 - p). */
HG_INLINE void HG_T(drop_weights)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t e, int64_t num,
                                  const int64_t heads, const int forward)
{
    const int64_t per_edge = (heads + 3) / 4 * 4;
    const HG_E scale = (HG_E)a->scale;
    const uint32_t threshold = a->threshold, *restrict words = s->words;
    HG_E *restrict coefficient = (HG_E *)s->coefficient;
    edge_words(a, s, i, e, num, forward);
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++)
            coefficient[t * heads + h] *= words[t * per_edge + h] >= threshold ? scale : 0;
}

/* coefficient = m exp(logit - maximum); raises maximum, and returns whether sums must be multiplied by s->factor.
 * `whole`: heads is a constant power of two that fits a register, whose lanes then take turns with the heads. */
HG_INLINE int HG_T(forward_tile)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t e, int64_t num,
                                 const HG_E *a_dst, HG_E *restrict maximum, HG_E *restrict denominator,
                                 const int64_t heads, const int whole)
{
    const HG_T(full) zero = {0}, lowest = zero + HG_MINUS_INFINITY, one = zero + 1;
    HG_E *restrict logit = (HG_E *)s->coefficient, *restrict factor = (HG_E *)s->factor;
    const HG_E slope = a->score ? 1 : (HG_E)a->slope;   /* scores of whole rows are logits */
    int rescale = 0;
    if (!a->score)
        HG_T(logits)(a, s, a_dst, e, num, heads, 1);
    if (whole) {
        const HG_T(full) before = HG_T(each)(maximum, heads);
        const int64_t last = (num * heads - 1) / HG_FULL * HG_FULL;
        HG_T(full) top = lowest, sum = zero;
        for (int64_t k = 0; k < last; k += HG_FULL) {
            HG_AS_FULL(logit + k) = HG_T(leaky)(HG_AS_FULL(logit + k), slope);
            top = HG_T(larger)(HG_AS_FULL(logit + k), top);
        }
        /* Behind the tile, whatever the slope: -inf times 0 would be NaN. */
        HG_AS_FULL(logit + last) = HG_T(first)(HG_T(leaky)(HG_AS_FULL(logit + last), slope), num * heads - last,
                                               HG_MINUS_INFINITY);
        top = HG_T(larger)(HG_AS_FULL(logit + last), top);
        top = HG_T(larger)(HG_T(largest)(top, heads), before);
        const HG_T(full) shift = HG_CHOICE(top > lowest, top, zero);    /* -inf - -inf would be NaN */
        for (int64_t k = 0; k < num * heads; k += HG_FULL) {
            HG_AS_FULL(logit + k) = HG_T(exp)(HG_AS_FULL(logit + k) - shift);
            sum += HG_AS_FULL(logit + k);
        }
        sum = HG_T(total)(sum, heads);
        const HG_T(full) ratio = HG_CHOICE(before > lowest, HG_T(exp)(before - shift), one);
        HG_UNROLL
        for (int64_t h = 0; h < heads; h++) {
            maximum[h] = top[h];
            factor[h] = ratio[h];
            rescale |= ratio[h] != 1;
            denominator[h] = denominator[h] * ratio[h] + sum[h];
        }
    } else {
        for (int64_t k = 0; k < num * heads; k += HG_FULL)
            HG_AS_FULL(logit + k) = HG_T(leaky)(HG_AS_FULL(logit + k), slope);
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
            for (int64_t h = 0; h < heads; h++)
                logit[t * heads + h] -= maximum[h] > HG_MINUS_INFINITY ? maximum[h] : 0;
        for (int64_t k = 0; k < num * heads; k += HG_FULL)
            HG_AS_FULL(logit + k) = HG_T(exp)(HG_AS_FULL(logit + k));
        for (int64_t t = 0; t < num; t++)
            for (int64_t h = 0; h < heads; h++)
                denominator[h] += logit[t * heads + h];
    }
    if (a->row_ids)
        HG_T(drop_weights)(a, s, i, e, num, heads, 1);
    return rescale;
}

/* coefficient = m alpha, derivative = alpha times that of the leaky ReLU. a_src is the row's own. */
HG_INLINE void HG_T(backward_tile)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t e,
                                   int64_t num, const HG_E *a_src, const int64_t heads)
{
    HG_E *restrict coefficient = (HG_E *)s->coefficient;
    HG_E *restrict derivative = (HG_E *)s->derivative, *restrict top = (HG_E *)s->other;
    HG_T(logits)(a, s, a_src, e, num, heads, 0);
    for (int64_t k = 0; k < num * heads; k += HG_FULL) {
        const HG_T(full) x = HG_AS_FULL(coefficient + k);
        const HG_T(full) alpha = HG_T(exp)(HG_T(leaky)(x, (HG_E)a->slope) - HG_AS_FULL(top + k));
        HG_AS_FULL(derivative + k) = alpha * HG_T(slopes)(x, (HG_E)a->slope);
        HG_AS_FULL(coefficient + k) = alpha;
    }
    if (a->row_ids)
        HG_T(drop_weights)(a, s, i, e, num, heads, 0);
}

/* gradient of the logits from the dots <gy, z'>, 0 of what is dropped; adds them to ga_src. The difference from D comes
 * first: where one alpha is 1 it is exactly 0, and anything else would be a share of z that large features make larger
 * than the gradient. */
HG_INLINE void HG_T(backward_logits)(hg_attention_scratch *s, int64_t num, HG_E *restrict ga_src, HG_E *restrict gradient,
                                     int64_t stride, const int dropping, const int64_t heads, const int whole)
{
    const HG_E *restrict shift = (const HG_E *)s->shift, *restrict derivative = (const HG_E *)s->derivative;
    const HG_E *restrict coefficient = (const HG_E *)s->coefficient;
    const HG_T(full) zero = {0};
    HG_E *restrict dots = (HG_E *)s->dots;
    const int64_t last = (num * heads - 1) / HG_FULL * HG_FULL;
    HG_T(full) sum = {0};
    for (int64_t k = 0; k <= last; k += HG_FULL) {
        HG_T(full) along = HG_AS_FULL(dots + k);
        if (dropping)
            along = HG_CHOICE(HG_AS_FULL(coefficient + k) == zero, zero, along);
        HG_AS_FULL(dots + k) = (along - HG_AS_FULL(shift + k)) * HG_AS_FULL(derivative + k);
        if (whole && k < last)
            sum += HG_AS_FULL(dots + k);
    }
    if (whole) {
        sum += HG_T(first)(HG_AS_FULL(dots + last), num * heads - last, 0);
        sum = HG_T(total)(sum, heads);
        HG_UNROLL
        for (int64_t h = 0; h < heads; h++)
            ga_src[h] += sum[h];
    } else {
        for (int64_t t = 0; t < num; t++)
            for (int64_t h = 0; h < heads; h++)
                ga_src[h] += dots[t * heads + h];
    }
    if (stride == heads)
        memcpy(gradient, dots, (size_t)(num * heads) * sizeof *dots);
    else
        for (int64_t t = 0; t < num; t++)
            memcpy(gradient + t * stride, dots + t * heads, (size_t)heads * sizeof *dots);
}

#define HG_HEADS(call)                                                                                                 \
    switch (a->heads) {                                                                                                \
    case 1: call(1, 1); break;                                                                                         \
    case 2: call(2, 1); break;                                                                                         \
    case 4: call(4, (4 <= HG_FULL)); break;                                                                            \
    case 8: call(8, (8 <= HG_FULL)); break;                                                                            \
    default: call(a->heads, 0);                                                                                        \
    }

static __attribute__((noinline)) int HG_T(forward_weights)(const hg_attention_args *a, hg_attention_scratch *s,
                                                           int64_t i, int64_t e, int64_t num, HG_E *maximum,
                                                           HG_E *denominator)
{
    const HG_E *a_dst = (const HG_E *)a->own + (a->rows ? a->rows[i] : i) * a->own_stride;
#define HG_OF_HEADS(heads, whole) return HG_T(forward_tile)(a, s, i, e, num, a_dst, maximum, denominator, heads, whole)
    HG_HEADS(HG_OF_HEADS)
#undef HG_OF_HEADS
}

static __attribute__((noinline)) void HG_T(backward_weights)(const hg_attention_args *a, hg_attention_scratch *s,
                                                             int64_t i, int64_t e, int64_t num)
{
    const int64_t r = a->rows ? a->rows[i] : i;
    const HG_E *a_src = (const HG_E *)a->own + r * a->own_stride + a->heads * a->head_width;
#define HG_OF_HEADS(heads, whole) HG_T(backward_tile)(a, s, i, e, num, a_src, heads)
    HG_HEADS(HG_OF_HEADS)
#undef HG_OF_HEADS
}

/* Of scores of whole rows, from logits and dots: coefficient = m alpha, derivative = alpha (<gy, m z'> - D), with D in
 * factor. */
static __attribute__((noinline)) void HG_T(score_weights)(const hg_attention_args *a, hg_attention_scratch *s, int64_t i,
                                                          int64_t e, int64_t num)
{
    const int64_t heads = a->heads, r = a->rows ? a->rows[i] : i;
    const HG_E *restrict top = (const HG_E *)a->maximum + r * a->maximum_stride;
    const HG_E *restrict share = (const HG_E *)a->denominator + r * a->denominator_stride;
    const HG_E *restrict shift = (const HG_E *)s->factor, *restrict dots = (const HG_E *)s->dots;
    HG_E *restrict coefficient = (HG_E *)s->coefficient, *restrict derivative = (HG_E *)s->derivative;
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++)
            coefficient[t * heads + h] -= top[h];
    for (int64_t k = 0; k < num * heads; k += HG_FULL)
        HG_AS_FULL(coefficient + k) = HG_T(exp)(HG_AS_FULL(coefficient + k));
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++)
            derivative[t * heads + h] = coefficient[t * heads + h] *= share[h];
    if (a->row_ids)
        HG_T(drop_weights)(a, s, i, e, num, heads, 1);
    for (int64_t t = 0; t < num; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t k = t * heads + h;
            derivative[k] *= (a->row_ids && coefficient[k] == 0 ? 0 : dots[k]) - shift[h];
        }
}

static __attribute__((noinline)) void HG_T(backward_finish)(const hg_attention_args *a, hg_attention_scratch *s,
                                                            int64_t num, HG_E *ga_src, HG_E *gradient, int64_t stride)
{
#define HG_OF_HEADS(heads, whole) HG_T(backward_logits)(s, num, ga_src, gradient, stride, a->row_ids != NULL, heads, whole)
    HG_HEADS(HG_OF_HEADS)
#undef HG_OF_HEADS
}

HG_INLINE void HG_T(begin_row)(const hg_attention_args *a, HG_E *y, HG_E *maximum, HG_E *denominator)
{
    memset(y, 0, (size_t)(a->heads * a->head_width) * sizeof *y);
    for (int64_t h = 0; h < a->heads; h++) {
        maximum[h] = HG_MINUS_INFINITY;
        denominator[h] = 0;
    }
}

/* What a complete block's row ends with: y, the inverse of the denominator, and the maximum; 1 and infinity without edges. */
HG_INLINE void HG_T(end_row)(const hg_attention_args *a, HG_E *y, HG_E *maximum, HG_E *denominator)
{
    HG_T(normalise)(y, denominator, a->bias, a->heads, a->head_width);
    for (int64_t h = 0; h < a->heads; h++) {
        const HG_E part = 1 / denominator[h];
        maximum[h] = maximum[h] == HG_MINUS_INFINITY ? -HG_MINUS_INFINITY : maximum[h];
        denominator[h] = part == -HG_MINUS_INFINITY ? 1 : part;
    }
}

static void HG_T(forward_merge)(const hg_attention_args *a, int64_t i, const void *partial, int64_t num, int begins,
                                int ends)
{
    const int64_t heads = a->heads, width = a->head_width, r = a->rows ? a->rows[i] : i;
    HG_E *y = (HG_E *)a->sums + r * a->sums_stride, *maximum = (HG_E *)a->maximum + r * a->maximum_stride;
    HG_E *denominator = (HG_E *)a->denominator + r * a->denominator_stride;
    if (a->complete && begins)
        HG_T(begin_row)(a, y, maximum, denominator);
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
    if (a->complete && ends)
        HG_T(end_row)(a, y, maximum, denominator);
}

HG_INLINE void HG_T(add)(HG_E *restrict sums, const HG_E *restrict more, int64_t num)
{
    for (int64_t c = 0; c < num; c++)
        sums[c] += more[c];
}

static void HG_T(score_add)(void *sums, const void *more, int64_t num)
{
    HG_T(add)((HG_E *)sums, (const HG_E *)more, num);
}

static void HG_T(score_merge)(const hg_attention_args *a, int64_t i, const void *partial, int64_t num)
{
    const int64_t width = hg_own_width(a), r = a->rows ? a->rows[i] : i;
    for (int64_t k = 0; k < num; k++)
        HG_T(add)((HG_E *)a->sums + r * a->sums_stride, (const HG_E *)partial + k * width, width);
}

static void HG_T(backward_merge)(const hg_attention_args *a, int64_t i, void *partial, int64_t num, const void *before,
                                 void *after)
{
    const int64_t heads = a->heads, width = heads * a->head_width, each = width + heads, r = a->rows ? a->rows[i] : i;
    HG_E *gz = (HG_E *)a->sums + r * a->sums_stride, *ga_src = (HG_E *)a->ga_src + r * a->ga_src_stride;
    HG_E *sums = (HG_E *)partial;
    if (!a->complete) {
        for (int64_t k = 0; k < num; k++) {
            HG_T(add)(gz, sums + k * each, width);
            HG_T(add)(ga_src, sums + k * each + width, heads);
        }
        return;
    }
    if (before)
        HG_T(add)(sums, (const HG_E *)before, each);
    for (int64_t k = 1; k < num; k++)
        HG_T(add)(sums, sums + k * each, each);
    if (after)
        memcpy(after, sums, (size_t)each * sizeof *sums);
    else {
        memcpy(gz, sums, (size_t)width * sizeof *sums);
        memcpy(ga_src, sums + width, (size_t)heads * sizeof *sums);
    }
}
#undef HG_HEADS
#undef HG_CHOICE
#undef HG_AS_FULL
#undef HG_STEP1
#undef HG_STEP2
#undef HG_STEP4
#undef HG_STEP8
#undef HG_FOLD
#undef HG_PLUS
#undef HG_MINUS_INFINITY
#undef HG_WEIGHTS_AHEAD
