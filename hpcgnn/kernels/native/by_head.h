/* Template: the kernels of rows with heads, by the choice of a unit (units.h) by the width of a head. */
#if HG_FULL >= 16
#define HG_BY_HEAD(name, ...)                                                                                          \
    if (head_width >= 16) HG_JOIN(HG_T(name), _16)(__VA_ARGS__);                                                       \
    else if (head_width >= 8) HG_JOIN(HG_T(name), _8)(__VA_ARGS__);                                                    \
    else HG_BY_NARROW_HEAD(name, __VA_ARGS__)
#elif HG_FULL >= 8
#define HG_BY_HEAD(name, ...)                                                                                          \
    if (head_width >= 8) HG_JOIN(HG_T(name), _8)(__VA_ARGS__);                                                         \
    else HG_BY_NARROW_HEAD(name, __VA_ARGS__)
#else
#define HG_BY_HEAD HG_BY_NARROW_HEAD
#endif
#if HG_FULL >= 4
#define HG_BY_NARROW_HEAD(name, ...)                                                                                   \
    if (head_width >= 4) HG_JOIN(HG_T(name), _4)(__VA_ARGS__);                                                         \
    else if (head_width >= 2) HG_JOIN(HG_T(name), _2)(__VA_ARGS__);                                                    \
    else HG_JOIN(HG_T(name), _1)(__VA_ARGS__);
#else
#define HG_BY_NARROW_HEAD(name, ...)                                                                                   \
    if (head_width >= 2) HG_JOIN(HG_T(name), _2)(__VA_ARGS__);                                                         \
    else HG_JOIN(HG_T(name), _1)(__VA_ARGS__);
#endif

#define HG_OF_HEADS(name, parameters, ...)                                                                              \
    static void HG_T(name) parameters                                                                                  \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD(name, __VA_ARGS__)                                                                                  \
    }

HG_OF_HEADS(forward_rows, (const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last), a, s, first, last)
HG_OF_HEADS(forward_chunk, (const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                            void *partial), a, s, i, first, last, partial)
HG_OF_HEADS(backward_rows, (const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last,
                            void *gradient, int64_t stride), a, s, first, last, gradient, stride)
HG_OF_HEADS(backward_chunk, (const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                             void *partial, void *gradient, int64_t stride), a, s, i, first, last, partial, gradient, stride)
HG_OF_HEADS(score_rows, (const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last,
                         const hg_score_edges *edges), a, s, first, last, edges)
HG_OF_HEADS(score_chunk, (const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first, int64_t last,
                          void *partial, const hg_score_edges *edges), a, s, i, first, last, partial, edges)
HG_OF_HEADS(score_return, (const hg_attention_args *a, hg_attention_scratch *s, const void *coefficients,
                           const void *derivatives, const int32_t *rows, int64_t r, int64_t first, const int32_t *order,
                           int64_t num), a, s, coefficients, derivatives, rows, r, first, order, num)

static void HG_T(elu_gradient)(void *out, const void *gy, const void *y, const void *x, const void *bias, void *dots,
                               void *sums, int64_t heads, int64_t head_width, int scaled)
{
    HG_BY_HEAD(elu_gradient, out, gy, y, x, bias, dots, sums, heads, head_width, scaled)
}
