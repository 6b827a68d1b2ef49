/* Template, a part of units.h: the gradient of what stands between two layers, a head at a time.
 *
 * Attention wants an inner product per head beside it, D = <gy, y>. It is summed as backward_group sums <gy, z'>, unit
 * by unit and lane by lane, so that where y is z' the two are equal to the bit and their difference is 0.
 *
 * `out` may be what is read: a last unit that overlaps the one before is read before that is written.
 */
HG_INLINE void HG_IN_UNITS(gradient_of_head)(HG_E *out, const HG_E *gy, const HG_E *y, const HG_E *x, const HG_E *bias,
                                             HG_E *dot, HG_E *sums, int64_t width, const int scaled)
{
    const int64_t units = HG_PADDED(width) / HG_LANES, overlap = units * HG_LANES - width;
    HG_IN_UNITS(vec) zero = {0}, along[HG_GROUP] = {0};
    const HG_IN_UNITS(vec) factor = zero + (scaled ? *dot : 1);
#define HG_READ(n, c)                                                                                                  \
    HG_IN_UNITS(vec) gradient##n = *(const HG_IN_UNITS(loose) *)(gy + (c)), x##n = zero, sum##n = zero;                \
    if (y) {                                                                                                           \
        const HG_IN_UNITS(vec) before = *(const HG_IN_UNITS(loose) *)(y + (c));                                        \
        gradient##n *= HG_PICK(before > zero, zero + 1, before + 1);                                                   \
    }                                                                                                                  \
    if (dot)                                                                                                           \
        x##n = *(const HG_IN_UNITS(loose) *)(x + (c));                                                                 \
    if (dot && bias)                                                                                                   \
        x##n -= *(const HG_IN_UNITS(loose) *)(bias + (c));                                                             \
    if (sums)                                                                                                          \
        sum##n = *(const HG_IN_UNITS(loose) *)(sums + (c)) + gradient##n;                                              \
    if (scaled)                                                                                                        \
        gradient##n *= factor;
#define HG_WRITE(n, c)                                                                                                 \
    if (dot)                                                                                                           \
        along[0] += gradient##n * x##n;                                                                                \
    if (sums)                                                                                                          \
        *(HG_IN_UNITS(loose) *)(sums + (c)) = sum##n;                                                                  \
    *(HG_IN_UNITS(loose) *)(out + (c)) = gradient##n;
    for (int64_t u = 0; u < (overlap ? units - 2 : units); u++) {
        HG_READ(1, u * HG_LANES)
        HG_WRITE(1, u * HG_LANES)
    }
#if HG_LANES > 1
    if (overlap) {
        const HG_IN_UNITS(lanes) lane = {HG_JOIN(HG_LANES_, HG_LANES)(HG_ITSELF)};
        HG_READ(1, (units - 2) * HG_LANES)
        HG_READ(2, width - HG_LANES)
        x2 = HG_PICK(lane >= (HG_I)overlap, x2, zero);
        HG_WRITE(1, (units - 2) * HG_LANES)
        HG_WRITE(2, width - HG_LANES)
    }
#endif
#undef HG_READ
#undef HG_WRITE
    if (dot)
        HG_IN_UNITS(sum_lanes)(dot, 1, along, 1);
}

static __attribute__((noinline)) void HG_IN_UNITS(elu_gradient)(void *out, const void *gy, const void *y, const void *x,
                                                                const void *bias, void *dots, void *sums, int64_t heads,
                                                                int64_t width, int scaled)
{
    for (int64_t h = 0, c = 0; h < heads; h++, c += width) {
        HG_E *of = (HG_E *)out + c, *dot = dots ? (HG_E *)dots + h : NULL, *sum = sums ? (HG_E *)sums + c : NULL;
        const HG_E *above = (const HG_E *)gy + c, *before = y ? (const HG_E *)y + c : NULL;
        const HG_E *with = dots ? (const HG_E *)x + c : NULL, *less = bias ? (const HG_E *)bias + c : NULL;
        if (dot && scaled)
            HG_IN_UNITS(gradient_of_head)(of, above, before, with, less, dot, sum, width, 1);
        else
            HG_IN_UNITS(gradient_of_head)(of, above, before, with, less, dot, sum, width, 0);
    }
}
