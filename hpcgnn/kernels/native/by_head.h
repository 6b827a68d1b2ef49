/* The kernels of rows with heads, of each element type: the choice of a unit (units.h) by the width of a head. */
#if HG_VECTOR_BYTES >= 64
#define HG_BY_HEAD_f32(name, ...)                                                                                      \
    if (head_width >= 16) name##_f32_16(__VA_ARGS__);                                                                  \
    else if (head_width >= 8) name##_f32_8(__VA_ARGS__);                                                               \
    else HG_BY_HEAD_NARROW(name##_f32, __VA_ARGS__)
#define HG_BY_HEAD_f64(name, ...)                                                                                      \
    if (head_width >= 8) name##_f64_8(__VA_ARGS__);                                                                    \
    else HG_BY_HEAD_NARROW(name##_f64, __VA_ARGS__)
#elif HG_VECTOR_BYTES >= 32
#define HG_BY_HEAD_f32(name, ...)                                                                                      \
    if (head_width >= 8) name##_f32_8(__VA_ARGS__);                                                                    \
    else HG_BY_HEAD_NARROW(name##_f32, __VA_ARGS__)
#define HG_BY_HEAD_f64(name, ...) HG_BY_HEAD_NARROW(name##_f64, __VA_ARGS__)
#else
#define HG_BY_HEAD_f32(name, ...) HG_BY_HEAD_NARROW(name##_f32, __VA_ARGS__)
#define HG_BY_HEAD_f64(name, ...)                                                                                      \
    if (head_width >= 2) name##_f64_2(__VA_ARGS__);                                                                    \
    else name##_f64_1(__VA_ARGS__);
#endif
#define HG_BY_HEAD_NARROW(name, ...)                                                                                   \
    if (head_width >= 4) name##_4(__VA_ARGS__);                                                                        \
    else if (head_width >= 2) name##_2(__VA_ARGS__);                                                                   \
    else name##_1(__VA_ARGS__);

#define HG_ENTRIES(type)                                                                                               \
    static void forward_rows_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last)  \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(forward_rows, a, s, first, last)                                                             \
    }                                                                                                                  \
    static void forward_chunk_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,    \
                                     int64_t last, void *partial)                                                      \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(forward_chunk, a, s, i, first, last, partial)                                                \
    }                                                                                                                  \
    static void backward_rows_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last, \
                                     void *gradient, int64_t stride)                                                   \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(backward_rows, a, s, first, last, gradient, stride)                                          \
    }                                                                                                                  \
    static void backward_chunk_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,   \
                                      int64_t last, void *partial, void *gradient, int64_t stride)                     \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(backward_chunk, a, s, i, first, last, partial, gradient, stride)                             \
    }                                                                                                                  \
    static void score_rows_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t first, int64_t last,    \
                                  const hg_score_edges *edges)                                                         \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(score_rows, a, s, first, last, edges)                                                        \
    }                                                                                                                  \
    static void score_chunk_##type(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t first,      \
                                   int64_t last, void *partial, const hg_score_edges *edges)                           \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(score_chunk, a, s, i, first, last, partial, edges)                                           \
    }                                                                                                                  \
    static void score_return_##type(const hg_attention_args *a, hg_attention_scratch *s, const void *coefficients,         \
                                    const void *derivatives, const int32_t *rows, int64_t r, int64_t first,            \
                                    const int32_t *order, int64_t num)                                                 \
    {                                                                                                                  \
        const int64_t head_width = a->head_width;                                                                      \
        HG_BY_HEAD_##type(score_return, a, s, coefficients, derivatives, rows, r, first, order, num)                   \
    }
HG_ENTRIES(f32)
HG_ENTRIES(f64)

#define HG_GRADIENT(type)                                                                                              \
    static void elu_gradient_##type(void *out, const void *gy, const void *y, const void *x, const void *bias,         \
                                    void *dots, void *sums, int64_t heads, int64_t head_width, int scaled)             \
    {                                                                                                                  \
        HG_BY_HEAD_##type(elu_gradient, out, gy, y, x, bias, dots, sums, heads, head_width, scaled)                    \
    }
HG_GRADIENT(f32)
HG_GRADIENT(f64)
