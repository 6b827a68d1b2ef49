/* Template: the loops over the columns of one row, left to the compiler to vectorise for the path at hand. */

#define HG_SAME(value) (value)

#define HG_COPY_ROW(name, from, to, type, widen, narrow)                                                               \
    static void name(void *out, const void *x, int64_t width, double scale)                                            \
    {                                                                                                                  \
        const from *restrict source = (const from *)x;                                                                 \
        to *restrict target = (to *)out;                                                                               \
        const type factor = (type)scale;                                                                               \
        if (sizeof(from) == sizeof(to) && scale == 1) {                                                                \
            memcpy(target, source, (size_t)width * sizeof(to));                                                        \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t c = 0; c < width; c++)                                                                            \
            target[c] = narrow(factor * widen(source[c]));                                                             \
    }

HG_COPY_ROW(copy_f32, float, float, float, HG_SAME, HG_SAME)
HG_COPY_ROW(copy_f64, double, double, double, HG_SAME, HG_SAME)
HG_COPY_ROW(copy_bf16, uint16_t, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)
HG_COPY_ROW(copy_f32_bf16, float, uint16_t, float, HG_SAME, hg_bf16_of_float)

/* The product is formed before the choice: a conditional product would not be vectorised (it might trap). */
#define HG_DROP(name, element, type, widen, narrow)                                                                    \
    static void name(void *out, const void *x, const uint32_t *words, int64_t num, const hg_dropout_rule *rule)        \
    {                                                                                                                  \
        const element *source = (const element *)x;                                                                    \
        element *target = (element *)out;                                                                              \
        const uint32_t threshold = rule->threshold;                                                                    \
        const type factor = (type)rule->scale;                                                                         \
        HG_INDEPENDENT                                                                                                 \
        for (int64_t c = 0; c < num; c++) {                                                                            \
            element kept = narrow(factor * widen(source[c]));                                                          \
            target[c] = words[c] >= threshold ? kept : 0;                                                              \
        }                                                                                                              \
    }

HG_DROP(drop_f32, float, float, HG_SAME, HG_SAME)
HG_DROP(drop_f64, double, double, HG_SAME, HG_SAME)
HG_DROP(drop_bf16, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)

/* Bytes are summed as floats whatever they mean: only the reading is of interest. */
typedef float hg_probe_vec __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef float hg_probe_loose __attribute__((vector_size(HG_VECTOR_BYTES), aligned(2), may_alias));
typedef float hg_probe_scalar __attribute__((aligned(2), may_alias));

static float probe(const void *x, int64_t row_bytes, int64_t stride_bytes, const int32_t *indices, int64_t num,
                   int64_t readable)
{
    hg_probe_vec acc[4] = {{0}, {0}, {0}, {0}};
    const char *base = (const char *)x;
    const int64_t edges_ahead = row_bytes >= 2048 ? 2 : row_bytes >= 512 ? 4 : 10;
    for (int64_t e = 0; e < num; e++) {
        if (e + edges_ahead < readable) {
            const char *p = base + indices[e + edges_ahead] * stride_bytes;
            for (int64_t b = 0; b < row_bytes; b += 64)
                __builtin_prefetch(p + b);
            __builtin_prefetch(p + row_bytes - 1);
        }
        const char *row = base + indices[e] * stride_bytes;
        int64_t b = 0;
        for (; b + 4 * HG_VECTOR_BYTES <= row_bytes; b += 4 * HG_VECTOR_BYTES) {
            HG_UNROLL
            for (int k = 0; k < 4; k++)
                acc[k] += *(const hg_probe_loose *)(row + b + k * HG_VECTOR_BYTES);
        }
        for (; b + HG_VECTOR_BYTES <= row_bytes; b += HG_VECTOR_BYTES)
            acc[0] += *(const hg_probe_loose *)(row + b);
        for (; b + 4 <= row_bytes; b += 4)
            acc[1][0] += *(const hg_probe_scalar *)(row + b);
    }
    acc[0] += acc[1] + acc[2] + acc[3];
    float sum = 0;
    for (int k = 0; k < HG_VECTOR_BYTES / 4; k++)
        sum += acc[0][k];
    return sum;
}
