/* Chains of square linear maps with an activation before each: the hidden layers of a perceptron.
 * There may be a map of other rows x, the result of which is added to z, layer norm behind the chain, and x added to all.
 *
 * A thread takes a block of rows through all maps while it is in the first-level cache. Backwards it does so again, keeps
 * what the activations make in its own memory, and takes the gradients of the block through all maps likewise.
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
    float *panels;              /* of each map, and of `own` behind them; those of gradients are transposed */
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
static void pack_maps(const hg_chain *c, int transposed)
{
    const int64_t down = transposed ? 1 : c->a->width, across = transposed ? c->a->width : 1;
    for (int64_t k = 0; k < maps_of(c->a); k++) {
        const hg_weights w = map_of(c, k);
        hg_pack_weights(&w, k < c->a->maps ? c->a->weights + k * c->a->width * c->a->width : c->a->own, down, across);
    }
}

/* See table.h. */
static void take_rows(const hg_chain *c, float *to, int64_t to_stride, const float *from, int64_t stride,
                      const int32_t *index, int64_t first, int64_t num, int add)
{
    c->table->products.take_rows(to, to_stride, from, stride, index, first, num, c->a->width, add);
}

/* Prefetches part k of a block's rows from `first` on, to be read or, with `write`, written. There is a part for each map: the
 * processor fetches so few lines beside the products, and drops more. */
static inline void ask_for(const hg_chain *c, const float *from, int64_t stride, const int32_t *index, int64_t first,
                           int64_t k, int write)
{
    const int64_t maps = c->a->maps, end = hg_least(first + (k + 1) * HG_ROWS / maps, c->a->rows);
    const int64_t width = hg_least(c->a->width, 2 * HG_LINE);     /* the processor finds lines behind these by itself */
    for (int64_t i = first + k * HG_ROWS / maps; from && i < end; i++)
        for (int64_t at = 0; at < width; at += HG_LINE) {
            const float *line = from + (index ? index[i] : i) * stride + at;
            if (write)
                __builtin_prefetch(line, 1);
            else
                __builtin_prefetch(line);
        }
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
                to[k] = from[k] < 0 ? 0 : from[k];      /* what is not a number stays so */
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

/* What a thread has of a block. hidden: of each activation, HG_ROWS rows, `step` numbers apart. */
typedef struct {
    float *product;             /* (HG_ROWS, stride); so are the next two */
    float *other;
    float *gy;
    float *normal;              /* (HG_ROWS, width) */
    float *inverse;             /* (HG_ROWS) */
    float *hidden;
    int64_t step;
} hg_chain_block;

static int64_t memory_of_block(const hg_chain *c, int64_t kept)
{
    return HG_ROWS * (3 * c->stride + (kept + 1) * c->a->width + 1);
}

static hg_chain_block block_in(const hg_chain *c, float *memory, int64_t kept)
{
    const int64_t rows = HG_ROWS * c->stride, size = HG_ROWS * c->a->width;
    float *normal = memory + 3 * rows, *hidden = normal + size;
    return (hg_chain_block){memory, memory + rows, memory + 2 * rows, normal, hidden + kept * size, hidden,
                            kept > 1 ? size : 0};
}

/* A block's rows of y behind layer norm; y NULL: only what their gradient reads. */
static void block_forward(const hg_chain *c, const hg_chain_block *b, int64_t first, int64_t num, float *y)
{
    const hg_chain_args *a = c->a;
    const int64_t width = a->width;
    const hg_ahead none = {0};
    take_rows(c, b->product, c->stride, a->z, a->z_stride, a->z_index, first, num, 0);
    if (a->more)
        take_rows(c, b->product, c->stride, a->more, a->more_stride, a->more_index, first, num, 1);
    if (a->x) {
        const hg_weights own = map_of(c, a->maps);
        hg_multiply_block(&own, b->product, c->stride, a->x + first * a->x_stride, a->x_stride, NULL, num, 1, &none);
    }
    for (int64_t k = 0; k < a->maps; k++) {
        float *h = b->hidden + k * b->step;
        const int last = k == a->maps - 1 && !a->scale;
        const hg_weights w = map_of(c, k);
        ask_for(c, a->z, a->z_stride, a->z_index, first + HG_ROWS, k, 0);
        ask_for(c, a->more, a->more_stride, a->more_index, first + HG_ROWS, k, 0);
        ask_for(c, a->x, a->x_stride, NULL, first + HG_ROWS, k, 0);
        ask_for(c, y ? a->y : NULL, a->y_stride, NULL, first, k, 1);
        activate(c, h, b->product, c->stride, num);
        if (!last || y)
            hg_multiply_block(&w, last ? y : b->product, last ? a->y_stride : c->stride, h, width, a->biases + k * width,
                              num, 0, &none);
    }
    if (a->scale)
        c->table->products.layer_norm(y, a->y_stride, b->normal, b->inverse, b->product, c->stride, a->scale, a->shift,
                                      (float)a->epsilon, num, width);
}

/* Returns 0, or -1: no memory. */
HG_EXPORT int hg_chain_forward(int path, int num_threads, const hg_chain_args *a)
{
    hg_chain c = chain_of(path, a);
    const int64_t size = maps_of(a) * a->width * a->width, scratch = memory_of_block(&c, 1);
    static _Thread_local hg_memory memory;
    num_threads = threads_for(a, num_threads);
    float *all = c.panels = hg_kept(&memory, (size + num_threads * scratch) * (int64_t)sizeof *all);
    if (!all)
        return -1;
    #pragma omp parallel num_threads(num_threads)
    {
        const hg_chain_block block = block_in(&c, all + size + omp_get_thread_num() * scratch, 1);
        pack_maps(&c, 0);
        #pragma omp for schedule(dynamic, 4)
        for (int64_t first = 0; first < a->rows; first += HG_ROWS) {
            const int64_t num = hg_least(a->rows - first, HG_ROWS);
            float *y = a->y + first * a->y_stride;
            block_forward(&c, &block, first, num, y);
            if (a->x)
                take_rows(&c, y, a->y_stride, a->x, a->x_stride, NULL, first, num, 1);
        }
    }
    return 0;
}

/* sums, the panels of a square matrix, += x (num, width) transposed, times g. */
static void multiply_transposed(const hg_weights *w, float *sums, const float *x, int64_t x_stride, const float *g,
                                int64_t stride, int64_t num)
{
    for (int64_t c = 0; c < w->width; c += w->kernels->columns)
        w->kernels->multiply_transposed(sums + c * w->width, w->width * HG_PANEL, x, x_stride, g + c, HG_PANEL, stride, num,
                                        w->width, hg_least(w->width - c, w->kernels->columns));
}

/* A block's rows of gz, and its part of a share's sums. back: the maps transposed. */
static void block_backward(const hg_chain *c, const hg_chain *back, const hg_chain_block *b, float *sums, int64_t first)
{
    const hg_chain_args *a = c->a;
    const int64_t num = hg_least(a->rows - first, HG_ROWS), width = a->width, stride = c->stride;
    const hg_ahead none = {0};
    float *g = b->other, *next = b->product;
    block_forward(c, b, first, num, NULL);
    take_rows(c, b->gy, stride, a->gy, a->gy_stride, a->gy_index, first, num, 0);
    if (a->scale) {
        float *of_norm = sums + maps_of(a) * width * (width + 1);
        c->table->of[HG_F32]->between.bias_gradient(of_norm + width, b->gy, stride, num, width);
        c->table->products.layer_norm_gradient(g, stride, b->gy, stride, b->normal, b->inverse, a->scale, of_norm, num, width);
    } else
        g = b->gy;
    for (int64_t k = a->maps - 1; k >= 0; k--) {
        const float *h = b->hidden + k * b->step;
        float *of_map = sums + k * width * (width + 1);
        const hg_weights w = map_of(back, k);
        ask_for(c, a->gy, a->gy_stride, a->gy_index, first + HG_ROWS, k, 0);
        ask_for(c, a->gz, a->gz_stride, NULL, first, k, 1);
        ask_for(c, a->x ? a->gx : NULL, a->gx_stride, NULL, first, k, 1);
        c->table->of[HG_F32]->between.bias_gradient(of_map + width * width, g, stride, num, width);
        multiply_transposed(&w, of_map, h, width, g, stride, num);
        hg_multiply_block(&w, next, stride, g, stride, NULL, num, 0, &none);
        deactivate(c, next, stride, h, num);
        g = next;
        next = g == b->product ? b->other : b->product;
    }
    if (a->x) {
        const hg_weights own = map_of(back, a->maps);
        float *gx = a->gx + first * a->gx_stride;
        multiply_transposed(&own, sums + a->maps * (width + 1) * width, a->x + first * a->x_stride, a->x_stride, g, stride, num);
        take_rows(c, gx, a->gx_stride, b->gy, stride, NULL, 0, num, 0);
        hg_multiply_block(&own, gx, a->gx_stride, g, stride, NULL, num, 1, &none);
    }
    take_rows(c, a->gz + first * a->gz_stride, a->gz_stride, g, stride, NULL, 0, num, 0);
}

/* All gradients from that of y. Returns 0, or -1: no memory. */
HG_EXPORT int hg_chain_backward(int path, int num_threads, const hg_chain_args *a)
{
    hg_chain c = chain_of(path, a);
    hg_chain back = c;
    const int64_t width = a->width, maps = maps_of(a), size = maps * width * width, scratch = memory_of_block(&c, a->maps);
    const int64_t blocks = (a->rows + HG_ROWS - 1) / HG_ROWS, sums_size = (maps * (width + 1) + 2) * width;
    const int64_t shares = hg_least((a->rows + HG_CHAIN_SHARE_ROWS - 1) / HG_CHAIN_SHARE_ROWS, HG_CHAIN_SHARES);
    static _Thread_local hg_memory memory;
    num_threads = threads_for(a, num_threads);
    float *all = c.panels =
        hg_kept(&memory, (2 * size + shares * sums_size + num_threads * scratch) * (int64_t)sizeof *all);
    if (!all)
        return -1;
    back.panels = all + size;
    float *all_sums = back.panels + size, *scratches = all_sums + shares * sums_size;
    #pragma omp parallel num_threads(num_threads)
    {
        const hg_chain_block block = block_in(&c, scratches + omp_get_thread_num() * scratch, a->maps);
        pack_maps(&c, 0);
        pack_maps(&back, 1);
        #pragma omp for schedule(dynamic, 1)
        for (int64_t s = 0; s < shares; s++) {
            memset(all_sums + s * sums_size, 0, (size_t)sums_size * sizeof *all_sums);
            for (int64_t b = s * blocks / shares; b < (s + 1) * blocks / shares; b++)
                block_backward(&c, &back, &block, all_sums + s * sums_size, b * HG_ROWS);
        }
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < maps * width; i++) {     /* a row of a map's weights, and one of its biases */
            const int64_t k = i / width, row = i % width;
            float *to = k < a->maps ? a->g_weights + i * width : a->g_own + row * width;
            for (int64_t s = 0; s < shares; s++) {
                const float *of_map = all_sums + s * sums_size + k * width * (width + 1);
                for (int64_t p = 0; p < width; p += HG_PANEL)
                    for (int64_t column = 0; column < HG_PANEL; column++)
                        to[p + column] += of_map[p * width + row * HG_PANEL + column];
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
