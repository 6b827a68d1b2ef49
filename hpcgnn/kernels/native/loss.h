/* Template: the loss of one row and its gradient, of f32 or f64. */
#define HG_LOSS(type, element, vector, ints, exponential)                                                              \
    /* -log softmax(x)[label] of x (width), width > 0, is the result + log *power. gradient: NULL, or that of x, which \
     * may be x itself. */                                                                                             \
    static double cross_entropy_##type(void *gradient, const void *x, int64_t width, int64_t label, double *power)     \
    {                                                                                                                  \
        const int64_t lanes = sizeof(vector) / sizeof(element);                                                        \
        const element *row = (const element *)x;                                                                       \
        const element chosen = row[label];                                                                             \
        element largest = row[0], total = 0;                                                                           \
        vector most = (vector){0} + largest, sum = {0};                                                                \
        HG_STEPS(0, width, HG_LARGEST_STEP, type, vector, ints)                                                        \
        HG_UNROLL                                                                                                      \
        for (int k = 0; k < (int)(sizeof(vector) / sizeof(element)); k++)                                              \
            largest = most[k] > largest ? most[k] : largest;                                                           \
        HG_STEPS(0, width, HG_EXPONENTIAL_STEP, type, vector, exponential)                                             \
        total = lane_sum_##type(sum);                                                                                  \
        if (gradient) {                                                                                                \
            const element factor = 1 / total;                                                                          \
            for (int64_t c = 0; c < width; c++)                                                                        \
                ((element *)gradient)[c] *= factor;                                                                    \
            ((element *)gradient)[label] -= 1;                                                                         \
        }                                                                                                              \
        *power = total;                                                                                                \
        return (double)largest - (double)chosen;                                                                       \
    }

#define HG_LARGEST_STEP(type, vector, ints, c, num)                                                                    \
    {                                                                                                                  \
        vector v = most;                                                                                               \
        memcpy(&v, row + c, (size_t)(num) * sizeof *row);                                                              \
        const ints larger = v > most;                                                                                  \
        most = (vector)HG_SELECT(ints, larger, v, most);                                                               \
    }
#define HG_EXPONENTIAL_STEP(type, vector, exponential, c, num)                                                         \
    {                                                                                                                  \
        const vector powers = exponential(load_##type(x, c, num) - largest);                                           \
        vector counted = {0};                                                                                          \
        memcpy(&counted, &powers, (size_t)(num) * sizeof *row);                                                        \
        sum += counted;                                                                                                \
        if (gradient)                                                                                                  \
            store_##type(gradient, c, num, powers);                                                                    \
    }

HG_LOSS(f32, float, hg_exp_f32, hg_exp_i32, exp_f32)
HG_LOSS(f64, double, hg_exp_f64, hg_exp_i64, exp_f64)
