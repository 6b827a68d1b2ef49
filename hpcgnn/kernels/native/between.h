/* Template: what is done to the rows between two layers, of f32 or f64, in one pass: ELU, the gradient of a bias, the
 * end of attention. Every step is of `num` columns: a whole register, or what is left of a head. ELU's gradient is in
 * between_rows.h.
 */
#define HG_STEPS(first, last, step, ...)                                                                               \
    {                                                                                                                  \
        int64_t c = (first);                                                                                           \
        for (; c + lanes <= (last); c += lanes)                                                                        \
            step(__VA_ARGS__, c, lanes)                                                                                \
        if (c < (last))                                                                                                \
            step(__VA_ARGS__, c, (last) - c)                                                                           \
    }

#define HG_BETWEEN(type, element, vector, exponential, lowest)                                                         \
    HG_INLINE vector load_##type(const void *row, int64_t column, int64_t num)                                         \
    {                                                                                                                  \
        vector v = {0};                                                                                                \
        memcpy(&v, (const element *)row + column, (size_t)num * sizeof(element));                                      \
        return v;                                                                                                      \
    }                                                                                                                  \
    HG_INLINE void store_##type(void *row, int64_t column, int64_t num, vector v)                                      \
    {                                                                                                                  \
        memcpy((element *)row + column, &v, (size_t)num * sizeof(element));                                            \
    }                                                                                                                  \
    HG_INLINE vector elu_lanes_##type(vector x)                                                                        \
    {                                                                                                                  \
        const vector zero = {0};                                                                                       \
        /* Below the least argument exp(x) - 1 is -1, as it is there. */                                               \
        return positive_or_##type(x, exponential(at_least_##type(zero + lowest, x)) - (zero + 1));                     \
    }                                                                                                                  \
    HG_INLINE element lane_sum_##type(vector v)                                                                        \
    {                                                                                                                  \
        element sum = 0;                                                                                               \
        HG_UNROLL                                                                                                      \
        for (int k = 0; k < (int)(sizeof(vector) / sizeof(element)); k++)                                              \
            sum += v[k];                                                                                               \
        return sum;                                                                                                    \
    }                                                                                                                  \
    /* x where that is positive, exp(x) - 1 elsewhere; out may be x itself. */                                         \
    static void elu_##type(void *out, const void *x, int64_t width)                                                    \
    {                                                                                                                  \
        const int64_t lanes = sizeof(vector) / sizeof(element);                                                        \
        HG_STEPS(0, width, HG_ELU_STEP, type)                                                                          \
    }                                                                                                                  \
    /* y = y / denominator of its head (0 where that is 0) + bias, unless NULL. */                                     \
    static void normalise_##type(void *y, const void *denominator, const void *bias, int64_t heads, int64_t width)     \
    {                                                                                                                  \
        const int64_t lanes = sizeof(vector) / sizeof(element);                                                        \
        for (int64_t h = 0; h < heads; h++) {                                                                          \
            const element sum = ((const element *)denominator)[h], factor = sum == 0 ? 0 : 1 / sum;                    \
            HG_STEPS(h * width, (h + 1) * width, HG_NORMALISE_STEP, type, vector)                                      \
        }                                                                                                              \
    }                                                                                                                  \
    /* sums += each row of gy. */                                                                                      \
    HG_INLINE void bias_rows_##type(void *sums, const element *gy, int64_t stride, int64_t width, const int num)       \
    {                                                                                                                  \
        const int64_t lanes = sizeof(vector) / sizeof(element);                                                        \
        HG_STEPS(0, width, HG_BIAS_GRADIENT_STEP, type, vector)                                                        \
    }                                                                                                                  \
    static void bias_gradient_##type(void *sums, const void *gy, int64_t stride, int64_t rows, int64_t width)          \
    {                                                                                                                  \
        const element *from = (const element *)gy;                                                                     \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 <= rows; i += 4)                                                                                  \
            bias_rows_##type(sums, from + i * stride, stride, width, 4);                                               \
        for (; i < rows; i++)                                                                                          \
            bias_rows_##type(sums, from + i * stride, stride, width, 1);                                               \
    }

#define HG_ELU_STEP(type, c, num) store_##type(out, c, num, elu_lanes_##type(load_##type(x, c, num)));
#define HG_BIAS_GRADIENT_STEP(type, vector, c, width)                                                                  \
    {                                                                                                                  \
        vector sum = load_##type(gy, c, width);                                                                        \
        if (num == 4)           /* pairs: rows wait for each other once, not four times */                             \
            sum = (sum + load_##type(gy + stride, c, width)) +                                                         \
                  (load_##type(gy + 2 * stride, c, width) + load_##type(gy + 3 * stride, c, width));                   \
        store_##type(sums, c, width, load_##type(sums, c, width) + sum);                                               \
    }
#define HG_NORMALISE_STEP(type, vector, c, num)                                                                        \
    {                                                                                                                  \
        vector result = factor * load_##type(y, c, num);                                                               \
        HG_ROUNDED(result);                                                                                            \
        store_##type(y, c, num, bias ? result + load_##type(bias, c, num) : result);                                   \
    }

HG_BETWEEN(f32, float, hg_exp_f32, exp_within_f32, HG_EXP_LOWEST_F32)
HG_BETWEEN(f64, double, hg_exp_f64, exp_within_f64, HG_EXP_LOWEST_F64)
