/* Template: ELU of one row of f32 or f64, x where that is positive and exp(x) - 1 elsewhere; out may be x itself. */
#define HG_ELU(name, element, vector, ints, exponential)                                                               \
    HG_INLINE vector name##_lanes(vector x)                                                                            \
    {                                                                                                                  \
        const vector zero = {0};                                                                                       \
        const ints positive = x > zero;                                                                                \
        return (vector)HG_SELECT(ints, positive, x, exponential(x) - (zero + 1));                                      \
    }                                                                                                                  \
    static void name(void *out, const void *x, int64_t width)                                                          \
    {                                                                                                                  \
        const int64_t lanes = sizeof(vector) / sizeof(element);                                                        \
        const element *source = (const element *)x;                                                                    \
        element *target = (element *)out;                                                                              \
        int64_t c = 0;                                                                                                 \
        for (; c + lanes <= width; c += lanes) {                                                                       \
            vector v;                                                                                                  \
            memcpy(&v, source + c, sizeof v);                                                                          \
            v = name##_lanes(v);                                                                                       \
            memcpy(target + c, &v, sizeof v);                                                                          \
        }                                                                                                              \
        if (c < width) {                                                                                               \
            vector v = {0};                                                                                            \
            memcpy(&v, source + c, (size_t)(width - c) * sizeof(element));                                             \
            v = name##_lanes(v);                                                                                       \
            memcpy(target + c, &v, (size_t)(width - c) * sizeof(element));                                             \
        }                                                                                                              \
    }

HG_ELU(elu_f32, float, hg_exp_f32, hg_exp_i32, exp_f32)
HG_ELU(elu_f64, double, hg_exp_f64, hg_exp_i64, exp_f64)
