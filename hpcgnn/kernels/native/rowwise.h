/* Template: the loops over the columns of one row, left to the compiler to vectorise for the path at hand. */

#define HG_SAME(value) (value)

#define HG_COPY_ROW(name, from, to, type, widen, narrow)                                                               \
    static void name(void *out, const void *x, int64_t width, double scale)                                            \
    {                                                                                                                  \
        const from *restrict source = (const from *)x;                                                                 \
        to *restrict target = (to *)out;                                                                               \
        const type factor = (type)scale;                                                                               \
        if (sizeof(from) == sizeof(to) && scale == 1 && width > 0) {                                                   \
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
HG_COPY_ROW(copy_bf16_f32, uint16_t, float, float, hg_float_of_bf16, HG_SAME)
HG_COPY_ROW(copy_f16_f32, uint16_t, float, float, hg_float_of_f16, HG_SAME)
HG_COPY_ROW(copy_i8_f32, int8_t, float, float, HG_SAME, HG_SAME)
/* As they are: whoever calls these has no factors. */
HG_COPY_ROW(copy_f16, uint16_t, uint16_t, uint16_t, HG_SAME, HG_SAME)
HG_COPY_ROW(copy_i8, int8_t, int8_t, int8_t, HG_SAME, HG_SAME)

/* out[c] += factor * x[c] for one row. */
#define HG_ADD_ROW(name, element, type, widen, narrow)                                                                 \
    static void name(void *out, const void *x, int64_t width, double scale)                                            \
    {                                                                                                                  \
        const element *restrict source = (const element *)x;                                                           \
        element *restrict target = (element *)out;                                                                     \
        const type factor = (type)scale;                                                                               \
        for (int64_t c = 0; c < width; c++)                                                                            \
            target[c] = narrow(widen(target[c]) + factor * widen(source[c]));                                          \
    }

HG_ADD_ROW(add_row_f32, float, float, HG_SAME, HG_SAME)
HG_ADD_ROW(add_row_f64, double, double, HG_SAME, HG_SAME)
HG_ADD_ROW(add_row_bf16, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)

/* out[c] = y[c] <= 0 ? 0 : scale * gradient[c]; out may be y or gradient. The choice is made as in HG_DROP. */
#define HG_RELU(name, element, bits, type, widen, narrow)                                                              \
    static void name(void *out, const void *gradient, const void *y, int64_t width, double scale)                      \
    {                                                                                                                  \
        const type *from = (const type *)gradient, factor = (type)scale;                                               \
        const element *value = (const element *)y;                                                                     \
        element *target = (element *)out;                                                                              \
        HG_INDEPENDENT                                                                                                 \
        for (int64_t c = 0; c < width; c++) {                                                                          \
            element kept = narrow(factor * from[c]);                                                                   \
            bits chosen;                                                                                               \
            memcpy(&chosen, &kept, sizeof kept);                                                                       \
            chosen &= (bits)-(bits)!(widen(value[c]) <= 0);                                                              \
            memcpy(target + c, &chosen, sizeof kept);                                                                  \
        }                                                                                                              \
    }

HG_RELU(relu_f32, float, uint32_t, float, HG_SAME, HG_SAME)
HG_RELU(relu_f64, double, uint64_t, double, HG_SAME, HG_SAME)
HG_RELU(relu_bf16, uint16_t, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)

/* The choice is made by masking bits: gcc 12 compiles `condition ? product : 0` to a branch that is mispredicted half
 * of the time. */
#define HG_DROP(name, element, bits, type, widen, narrow)                                                              \
    static void name(void *out, const void *x, const uint32_t *words, int64_t num, const hg_dropout_rule *rule)        \
    {                                                                                                                  \
        const element *source = (const element *)x;                                                                    \
        element *target = (element *)out;                                                                              \
        const uint32_t threshold = rule->threshold;                                                                    \
        const type factor = (type)rule->scale;                                                                         \
        const bits any = rule->relu ? 0 : (bits)-1;                                                                    \
        HG_INDEPENDENT                                                                                                 \
        for (int64_t c = 0; c < num; c++) {                                                                            \
            const type value = widen(source[c]);                                                                       \
            element kept = narrow(factor * value);                                                                     \
            bits chosen;                                                                                               \
            memcpy(&chosen, &kept, sizeof kept);                                                                       \
            chosen &= (bits)-(bits)(words[c] >= threshold) & (any | (bits)-(bits)!(value <= 0));                       \
            memcpy(target + c, &chosen, sizeof kept);                                                                  \
        }                                                                                                              \
    }

HG_DROP(drop_f32, float, uint32_t, float, HG_SAME, HG_SAME)
HG_DROP(drop_f64, double, uint64_t, double, HG_SAME, HG_SAME)
HG_DROP(drop_bf16, uint16_t, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)

/* a * b + c, rounded once wherever the processor can: torch's addcmul_ does so there. */
#if defined(__x86_64__) && HG_VECTOR_BYTES == 16
#define HG_FUSED_float(a, b, c) ((a) * (b) + (c))
#define HG_FUSED_double(a, b, c) ((a) * (b) + (c))
#else
#define HG_FUSED_float(a, b, c) __builtin_fmaf(a, b, c)
#define HG_FUSED_double(a, b, c) __builtin_fma(a, b, c)
#endif

#define HG_DROP_PART(name, element, bits, type, widen, narrow)                                                         \
    static void name(void *out, const void *x, const uint32_t *words, int64_t num, const hg_dropout_rule *rule,        \
                     const void *part)                                                                                 \
    {                                                                                                                  \
        const element *source = (const element *)x;                                                                    \
        element *target = (element *)out;                                                                              \
        const uint32_t threshold = rule->threshold;                                                                    \
        const type factor = (type)rule->scale, mine = widen(*(const element *)part), rest = widen(narrow(1 - mine));   \
        HG_INDEPENDENT                                                                                                 \
        for (int64_t c = 0; c < num; c++) {                                                                            \
            const type value = widen(source[c]);                                                                       \
            element kept = narrow(factor * value);                                                                     \
            bits chosen;                                                                                               \
            memcpy(&chosen, &kept, sizeof kept);                                                                       \
            chosen &= (bits)-(bits)(words[c] >= threshold);                                                            \
            memcpy(&kept, &chosen, sizeof kept);                                                                       \
            target[c] = narrow(HG_FUSED_##type(rest, value, widen(narrow(mine * widen(kept)))));                       \
        }                                                                                                              \
    }

HG_DROP_PART(drop_part_f32, float, uint32_t, float, HG_SAME, HG_SAME)
HG_DROP_PART(drop_part_f64, double, uint64_t, double, HG_SAME, HG_SAME)
HG_DROP_PART(drop_part_bf16, uint16_t, uint16_t, float, hg_float_of_bf16, hg_bf16_of_float)
