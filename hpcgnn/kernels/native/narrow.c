/* Rows in 8 bits for each number, rounded at random, and back. Each row is read twice while it is in the
 * cache: for its largest magnitude, and for its levels. */
#include "table.h"

#define HG_GROUPS (HG_LEVELS / 4)       /* groups of four columns that are drawn for at a time */
#define HG_LEAST_STEP 1e-30f            /* of codes: a 2^24th of it is not 0 */
#define HG_TINY 1.1754943508222875e-38

/* The step of the levels of a row by its largest magnitude, and its factor as it is sent. */
static double step_of(double magnitude, int type, float *factor)
{
    *factor = (float)(type == HG_F32 ? (double)((float)magnitude / 127.0f) : magnitude / 127.0);
    return *factor > HG_TINY ? *factor : HG_TINY;
}

/* Row i of out and of factors from row i of x, for ids[i]. */
HG_EXPORT void hg_narrow(int path, int num_threads, int type, uint64_t key, void *out, int64_t out_stride,
                         void *factors, int64_t factors_stride, const void *x, int64_t x_stride, const int64_t *ids,
                         int64_t num, int64_t width)
{
    const hg_kernels *table = hg_table(path);
    const hg_round_keys keys = hg_round_keys_of(key);
    const int64_t size = hg_size_of(type), groups = (width + 3) / 4;
    if (width == 0)
        return;
    #pragma omp parallel for schedule(static) num_threads(num * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < num; i++) {
        const char *row = (const char *)x + i * x_stride * size;
        uint8_t *to = (uint8_t *)out + i * out_stride;
        uint32_t words[4 * (HG_GROUPS + 8)];
        const double magnitude = table->of[type]->narrow.magnitude(row, width);
        const double step = step_of(magnitude, type, (float *)factors + i * factors_stride);
        for (int64_t g = 0; g < groups; g += HG_GROUPS) {
            const int64_t count = hg_least(groups - g, HG_GROUPS), columns = hg_least(width - 4 * g, 4 * count);
            table->philox_row(&keys, ids[i], (uint32_t)g, count, words);
            table->of[type]->narrow.levels(to + 4 * g, row + 4 * g * size, words, columns, step);
        }
    }
}

/* The rows (num, width) of what hg_narrow wrote. */
HG_EXPORT void hg_widen(int path, int num_threads, int type, void *out, int64_t out_stride, const void *narrow,
                        int64_t narrow_stride, const void *factors, int64_t factors_stride, int64_t num, int64_t width)
{
    const hg_kernels *table = hg_table(path);
    #pragma omp parallel for schedule(static) num_threads(num * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < num; i++) {
        const float step = ((const float *)factors)[i * factors_stride];
        table->of[type]->narrow.widen((char *)out + i * out_stride * hg_size_of(type), (const char *)narrow + i * narrow_stride,
                                  width, step);
    }
}

/* Codes of x and the steps of their blocks. A block has the counters from its first column / 8 on. */
HG_EXPORT void hg_encode(int path, int num_threads, int type, uint64_t key, void *codes, int64_t codes_stride, float *steps,
                         const void *x, int64_t x_stride, const int64_t *ids, int64_t num, int64_t width)
{
    const hg_kernels *table = hg_table(path);
    const hg_round_keys keys = hg_round_keys_of(key);
    const int64_t size = hg_size_of(type), blocks = (width + HG_CODED - 1) / HG_CODED;
    #pragma omp parallel for schedule(static) num_threads(num * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < num; i++) {
        uint32_t words[HG_CODED / 2 + 4 * 8];
        uint16_t halves[HG_CODED];
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t first = b * HG_CODED, columns = hg_least(width - first, HG_CODED);
            const char *block = (const char *)x + (i * x_stride + first) * size;
            const float whole = (float)table->of[type]->narrow.magnitude(block, columns) / 126.0f;
            const float step = whole < HG_LEAST_STEP ? HG_LEAST_STEP : whole;
            steps[i * blocks + b] = step;
            table->philox_row(&keys, ids[i], (uint32_t)(first / 8), (columns + 7) / 8, words);
            for (int64_t w = 0; w < (columns + 1) / 2; w++) {
                halves[2 * w] = (uint16_t)words[w];
                halves[2 * w + 1] = (uint16_t)(words[w] >> 16);
            }
            table->of[type]->narrow.codes((int8_t *)codes + i * codes_stride + first, block, halves, columns, step);
        }
    }
}

/* The rows (num, width) of what hg_encode wrote. */
HG_EXPORT void hg_decode(int path, int num_threads, int type, void *out, int64_t out_stride, const void *codes,
                         int64_t codes_stride, const float *steps, int64_t num, int64_t width)
{
    const hg_kernels *table = hg_table(path);
    const int64_t size = hg_size_of(type), blocks = (width + HG_CODED - 1) / HG_CODED;
    #pragma omp parallel for schedule(static) num_threads(num * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < num; i++)
        for (int64_t b = 0; b < blocks; b++)
            table->of[type]->narrow.decode((char *)out + (i * out_stride + b * HG_CODED) * size,
                                       (const int8_t *)codes + i * codes_stride + b * HG_CODED,
                                       hg_least(width - b * HG_CODED, HG_CODED), steps[i * blocks + b]);
}
