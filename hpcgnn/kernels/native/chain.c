/* Chains of square linear maps with an activation before each: the hidden layers of a perceptron.
 * There may be a map of other rows x, the result of which is added to z, layer norm behind the chain, and x added to all.
 *
 * A thread takes a block of rows through all maps while it is in the first-level cache. Forwards what an activation has
 * made is stored if it is asked for; backwards it is read, and the gradients of a block pass through all maps likewise.
 * Each share of the rows has its own sums of the gradients of weights and biases, which are added in order: no result
 * depends on the number of threads.
 */
#include "hg.h"

#include <omp.h>
#include <string.h>

#include "products.h"
#include "table.h"

#define HG_CHAIN_SHARES 64          /* at most */
#define HG_CHAIN_SHARE_ROWS 1024    /* at most, until there are HG_CHAIN_SHARES */

typedef struct {
    const hg_chain_args *a;
    const hg_kernels *table;
    float *panels;              /* of each map, and of `own` behind them; backwards transposed */
    int64_t stride;             /* between rows of a thread's: such that they do not share few sets of the cache */
} hg_chain;

static hg_chain chain_of(int path, const hg_chain_args *a)
{
    return (hg_chain){a, hg_table(path), NULL, a->width % 128 ? a->width : a->width + HG_PAD};
}

static hg_weights map_of(const hg_chain *c, int64_t k)
{
    const int64_t width = c->a->width;
    return (hg_weights){c->panels + k * width * width, width, width, &c->table->products};
}

static int64_t maps_of(const hg_chain_args *a)
{
    return a->maps + (a->x != NULL);
}

/* By every thread of a parallel region. */
static void pack_maps(const hg_chain *c, int64_t down, int64_t across)
{
    for (int64_t k = 0; k < maps_of(c->a); k++) {
        const hg_weights w = map_of(c, k);
        hg_pack_weights(&w, k < c->a->maps ? c->a->weights + k * c->a->width * c->a->width : c->a->own, down, across);
    }
}

/* to = from, or += it if `add`: `num` rows. */
static void take_rows(const hg_chain *c, float *to, int64_t to_stride, const float *from, int64_t stride, int64_t num, int add)
{
    for (int64_t i = 0; i < num; i++)
        (add ? c->table->add_row[HG_F32] : c->table->copy_row[HG_F32][HG_F32])(to + i * to_stride, from + i * stride,
                                                                               c->a->width, 1);
}

static int threads_for(const hg_chain_args *a, int num_threads)
{
    return a->rows * a->width * a->width * maps_of(a) < HG_FEW_PRODUCTS ? 1 : num_threads;
}

/* to (num, width), one row after the other, = the activation of rows. */
static void activate(const hg_chain *c, float *to, const float *from, int64_t stride, int64_t num)
{
    int64_t width = c->a->width;
    if (stride == width) {      /* as one row */
        width *= num;
        num = 1;
    }
    for (int64_t i = 0; i < num; i++, to += width, from += stride) {
        if (c->a->elu)
            c->table->of[HG_F32]->between.elu(to, from, width);
        else
            for (int64_t k = 0; k < width; k++)
                to[k] = from[k] > 0 ? from[k] : 0;
    }
}

/* g = the gradient of an activation's input from that of its result h (num, width). */
static void deactivate(const hg_chain *c, float *g, int64_t stride, const float *h, int64_t num)
{
    int64_t width = c->a->width;
    if (stride == width) {
        width *= num;
        num = 1;
    }
    for (int64_t i = 0; i < num; i++, g += stride, h += width) {
        if (c->a->elu)
            c->table->of[HG_F32]->between.elu_gradient(g, g, h, NULL, NULL, NULL, NULL, 1, width, 0);
        else
            c->table->relu_gradient[HG_F32](g, g, h, width, 1);
    }
}

/* Returns 0, or -1: no memory. */
HG_EXPORT int hg_chain_forward(int path, int num_threads, const hg_chain_args *a)
{
    hg_chain c = chain_of(path, a);
    const int64_t size = maps_of(a) * a->width * a->width, scratch = HG_ROWS * (a->width + c.stride + 1);
    static _Thread_local hg_memory memory;
    num_threads = threads_for(a, num_threads);
    float *all = c.panels = hg_kept(&memory, (size + num_threads * scratch) * (int64_t)sizeof *all);
    if (!all)
        return -1;
    #pragma omp parallel num_threads(num_threads)
    {
        float *hidden = all + size + omp_get_thread_num() * scratch, *product = hidden + HG_ROWS * a->width;
        const hg_ahead none = {0};
        pack_maps(&c, a->width, 1);
        #pragma omp for schedule(dynamic, 4)
        for (int64_t first = 0; first < a->rows; first += HG_ROWS) {
            const int64_t num = hg_least(a->rows - first, HG_ROWS);
            const float *x = a->x + first * a->x_stride;
            float *y = a->y + first * a->y_stride;
            take_rows(&c, product, c.stride, a->z + first * a->z_stride, a->z_stride, num, 0);
            if (a->more)
                take_rows(&c, product, c.stride, a->more + first * a->more_stride, a->more_stride, num, 1);
            if (a->x) {
                const hg_weights own = map_of(&c, a->maps);
                hg_multiply_block(&own, product, c.stride, x, a->x_stride, NULL, num, 1, &none);
            }
            for (int64_t k = 0; k < a->maps; k++) {
                float *h = a->kept ? a->kept + (k * a->rows + first) * a->width : hidden;
                const int last = k == a->maps - 1 && !a->scale;
                const hg_weights w = map_of(&c, k);
                activate(&c, h, product, c.stride, num);
                hg_multiply_block(&w, last ? y : product, last ? a->y_stride : c.stride, h, a->width,
                                  a->biases + k * a->width, num, 0, &none);
            }
            if (a->scale)
                c.table->products.layer_norm(y, a->y_stride, a->kept ? a->normal + first * a->width : hidden,
                                            a->kept ? a->inverse + first : product + HG_ROWS * c.stride, product, c.stride,
                                            a->scale, a->shift, (float)a->epsilon, num, a->width);
            if (a->x)
                take_rows(&c, y, a->y_stride, x, a->x_stride, num, 1);
        }
    }
    return 0;
}

/* A block's rows of gz, and its part of a share's sums. product: room for two blocks. */
static void block_backward(const hg_chain *c, float *sums, float *product, int64_t first)
{
    const hg_chain_args *a = c->a;
    const int64_t num = hg_least(a->rows - first, HG_ROWS), width = a->width;
    const hg_ahead none = {0};
    const float *g = a->gy + first * a->gy_stride;
    int64_t stride = a->gy_stride;
    if (a->scale) {
        float *of_norm = sums + maps_of(a) * width * (width + 1), *to = product + a->maps % 2 * HG_ROWS * c->stride;
        c->table->of[HG_F32]->between.bias_gradient(of_norm + width, g, stride, num, width);
        c->table->products.layer_norm_gradient(to, c->stride, g, stride, a->normal + first * width, a->inverse + first, a->scale,
                                       of_norm, num, width);
        g = to;
        stride = c->stride;
    }
    for (int64_t k = a->maps - 1; k >= 0; k--) {
        const float *h = a->kept + (k * a->rows + first) * width;
        float *of_map = sums + k * width * (width + 1);
        const hg_weights w = map_of(c, k);
        c->table->of[HG_F32]->between.bias_gradient(of_map + width * width, g, stride, num, width);
        for (int64_t p = 0; p < width; p += HG_PANEL)
            w.kernels->multiply_transposed(of_map + p * width, h, width, g + p, stride, num, width);
        const int64_t to_stride = k ? c->stride : a->gz_stride;
        float *to = k ? product + k % 2 * HG_ROWS * c->stride : a->gz + first * to_stride;
        hg_multiply_block(&w, to, to_stride, g, stride, NULL, num, 0, &none);
        deactivate(c, to, to_stride, h, num);
        g = to;
        stride = to_stride;
    }
    if (a->x) {
        const hg_weights own = map_of(c, a->maps);
        float *gx = a->gx + first * a->gx_stride;
        for (int64_t p = 0; p < width; p += HG_PANEL)
            own.kernels->multiply_transposed(sums + (a->maps * (width + 1) + p) * width, a->x + first * a->x_stride,
                                             a->x_stride, g + p, stride, num, width);
        take_rows(c, gx, a->gx_stride, a->gy + first * a->gy_stride, a->gy_stride, num, 0);
        hg_multiply_block(&own, gx, a->gx_stride, g, stride, NULL, num, 1, &none);
    }
}

/* All gradients from that of y. Returns 0, or -1: no memory. */
HG_EXPORT int hg_chain_backward(int path, int num_threads, const hg_chain_args *a)
{
    hg_chain c = chain_of(path, a);
    const int64_t width = a->width, maps = maps_of(a), size = maps * width * width, scratch = 2 * HG_ROWS * c.stride;
    const int64_t blocks = (a->rows + HG_ROWS - 1) / HG_ROWS, sums_size = (maps * (width + 1) + 2) * width;
    const int64_t shares = hg_least((a->rows + HG_CHAIN_SHARE_ROWS - 1) / HG_CHAIN_SHARE_ROWS, HG_CHAIN_SHARES);
    static _Thread_local hg_memory memory;
    num_threads = threads_for(a, num_threads);
    float *all = c.panels =
        hg_kept(&memory, (size + shares * sums_size + num_threads * scratch) * (int64_t)sizeof *all);
    if (!all)
        return -1;
    float *all_sums = all + size, *scratches = all_sums + shares * sums_size;
    #pragma omp parallel num_threads(num_threads)
    {
        float *product = scratches + omp_get_thread_num() * scratch;
        pack_maps(&c, 1, width);
        #pragma omp for schedule(dynamic, 1)
        for (int64_t s = 0; s < shares; s++) {
            memset(all_sums + s * sums_size, 0, (size_t)sums_size * sizeof *all_sums);
            for (int64_t b = s * blocks / shares; b < (s + 1) * blocks / shares; b++)
                block_backward(&c, all_sums + s * sums_size, product, b * HG_ROWS);
        }
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < maps * width; i++) {     /* a row of a map's weights, and one of its biases */
            const int64_t k = i / width, row = i % width;
            float *to = k < a->maps ? a->g_weights + i * width : a->g_own + row * width;
            for (int64_t s = 0; s < shares; s++) {
                const float *of_map = all_sums + s * sums_size + k * width * (width + 1);
                for (int64_t column = 0; column < width; column++)
                    to[column] += of_map[(column / HG_PANEL * width + row) * HG_PANEL + column % HG_PANEL];
                if (k < a->maps)
                    a->g_biases[i] += of_map[width * width + row];
            }
        }
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < (a->scale ? 2 * width : 0); i++)
            for (int64_t s = 0; s < shares; s++)
                a->g_norm[i] += all_sums[(s + 1) * sums_size - 2 * width + i];
    }
    return 0;
}
