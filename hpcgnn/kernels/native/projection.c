/* Projections in one pass over the rows: what they pass through, the product, and backwards all the gradients.
 *
 * A thread takes a block of rows, does everything to it while it is in its second-level cache, and takes the next:
 * nothing but the weights is shared, no thread waits for another before the end, and no step's result is written to
 * memory for the next.
 *
 * Backwards each share of the rows has its own sums of the gradient of the weights. Shares come in waves, for the sake
 * of memory, and after each their sums are added in order; the number of shares being a property of the rows alone, no
 * result depends on the number of threads.
 */
#include "hg.h"

#include <omp.h>
#include <string.h>

#include "products.h"
#include "table.h"

#define HG_TURN 4               /* blocks that a thread takes at a time, forwards, if there are many: it asks for the next one's rows */
#define HG_PAD 16               /* numbers between rows: columns of rows of a power of two would share few sets of the cache */
#define HG_SHARES 64            /* at most: so many threads have work backwards */
#define HG_SHARE_ROWS 2048      /* at most, until there are HG_SHARES: their product outweighs clearing and adding their sums */
#define HG_SUMS_BYTES (1 << 24) /* of the sums that are held at a time, but for one of each thread */

typedef struct {
    const hg_projection_args *a;
    const hg_kernels *table;
    const hg_between_kernels *between;
    hg_mask mask;
    hg_weights weights;         /* backwards transposed */
    int64_t stride;             /* of a thread's rows */
} hg_projection;

/* What a thread works in. */
typedef struct {
    float *entered;             /* (HG_ROWS, stride): rows as they are multiplied, but for rounding */
    float *gradient;            /* backwards: (HG_ROWS, stride), of what was entered */
    float *columns;             /* backwards: (depth), of gx */
    void *panel;                /* backwards: (HG_ROWS, HG_PANEL), the gradient of y */
    uint32_t *factors;          /* rounded: pairs of `entered`, of its columns or backwards of its rows */
    uint32_t *right;            /* rounded, backwards: pairs of the columns of the gradient of y */
    float *wide;                /* backwards: (HG_ROWS, width), the gradient of y if it is of bfloat16 */
} hg_scratch;

/* A share's sums. */
typedef struct {
    float *weight;              /* (panels, depth, HG_PANEL) */
    float *columns;             /* (depth) */
    float *y_columns;           /* (width) */
} hg_sums;

static hg_projection projection_of(int path, const hg_projection_args *a)
{
    const hg_kernels *table = hg_table(path);
    return (hg_projection){.a = a, .table = table, .between = &table->between[HG_F32], .stride = a->depth + HG_PAD,
                           .mask = hg_mask_of(path, a->key, a->threshold, a->scale)};
}

/* Numbers of 32 bits in a scratch. */
static int64_t scratch_size(const hg_projection *p, int backwards)
{
    const hg_projection_args *a = p->a;
    const int64_t forwards = HG_ROWS * (p->stride + (a->rounded ? p->stride : 0));
    const int64_t right = (a->rounded ? hg_words_of(1, a->width) : 0) + (a->y_type == HG_BF16 ? a->width : 0);
    return backwards ? forwards + HG_ROWS * (p->stride + HG_PANEL + right) + a->depth : forwards;
}

static hg_scratch scratch_of(const hg_projection *p, float *at, int backwards)
{
    const hg_projection_args *a = p->a;
    hg_scratch scratch = {.entered = at};
    at += HG_ROWS * p->stride;
    scratch.factors = (uint32_t *)at;
    at += a->rounded ? HG_ROWS * p->stride : 0;
    if (backwards) {
        scratch.gradient = at;
        scratch.panel = scratch.gradient + HG_ROWS * p->stride;
        scratch.columns = (float *)scratch.panel + HG_ROWS * HG_PANEL;
        scratch.right = (uint32_t *)(scratch.columns + a->depth);
        scratch.wide = (float *)scratch.right + (a->rounded ? HG_ROWS * hg_words_of(1, a->width) : 0);
    }
    return scratch;
}

static int threads_for(const hg_projection_args *a, int num_threads)
{
    return a->rows * a->depth * a->width < HG_FEW_PRODUCTS ? 1 : num_threads;
}

static void enter(const hg_projection *p, float *to, int64_t first, int64_t num)
{
    const hg_projection_args *a = p->a;
    const void *block = (const char *)a->x + first * a->x_stride * hg_size_of(a->x_type);
    if (a->x_type == HG_BF16) {
        p->table->products.widen(to, p->stride, block, a->x_stride, num, a->depth);
        return;
    }
    for (int64_t i = 0; i < num; i++) {
        const float *from = (const float *)block + i * a->x_stride;
        if (a->elu)
            p->between->elu(to + i * p->stride, from, a->depth);
        else
            memcpy(to + i * p->stride, from, (size_t)a->depth * sizeof *to);
    }
    if (a->ids)
        hg_mask_rows(&p->mask, HG_F32, to, p->stride, a->ids + first, num, a->depth);
}

/* y = what x passes through, times the weights. Returns 0, or -1: no memory. */
HG_EXPORT int hg_project(int path, int num_threads, const hg_projection_args *a)
{
    hg_projection p = projection_of(path, a);
    const int64_t size = hg_panels_size(a->rounded, a->depth, a->width), scratch = scratch_size(&p, 0);
    static _Thread_local hg_memory kept;
    num_threads = threads_for(a, num_threads);
    float *packed = hg_kept(&kept, (size + num_threads * scratch) * (int64_t)sizeof *packed);
    if (!packed)
        return -1;
    p.weights = (hg_weights){packed, a->depth, a->width, &p.table->products, a->rounded};
    const int64_t fair = a->rows / (4 * HG_ROWS * num_threads), turn = fair < 1 ? 1 : hg_least(fair, HG_TURN);
    #pragma omp parallel num_threads(num_threads)
    {
        const hg_scratch mine = scratch_of(&p, packed + size + omp_get_thread_num() * scratch, 0);
        hg_pack_weights(&p.weights, a->weight, a->weight_down, a->weight_across);
        #pragma omp for schedule(dynamic, turn)
        for (int64_t first = 0; first < a->rows; first += HG_ROWS) {
            const int64_t num = hg_least(a->rows - first, HG_ROWS);
            const hg_ahead next = hg_next_block(a->x, a->x_type, a->x_stride, a->depth, first, a->rows);
            enter(&p, mine.entered, first, num);
#if defined(HG_PAIRS)
            if (a->rounded)
                hg_pair_columns(mine.factors, p.stride, mine.entered, p.stride, num, a->depth);
#endif
            hg_multiply_block(&p.weights, (float *)a->y + first * a->y_stride, a->y_stride,
                              a->rounded ? (void *)mine.factors : mine.entered, p.stride, NULL, num, 0, &next);
        }
    }
    return 0;
}

/* Rows of gx and of dots, and their part of a share's columns, from the gradient of what was entered. */
static void leave(const hg_projection *p, const hg_scratch *scratch, float *columns, int64_t first, int64_t num)
{
    const hg_projection_args *a = p->a;
    const float unscaled = 1 / (float)a->scale;
    if (a->ids)
        hg_mask_rows(&p->mask, HG_F32, scratch->gradient, p->stride, a->ids + first, num, a->depth);
    if (a->sums)
        memset(scratch->columns, 0, (size_t)a->depth * sizeof *columns);
    for (int64_t i = 0; i < num; i++) {
        float *entered = scratch->entered + i * p->stride;
        if (a->ids)
            for (int64_t c = 0; c < a->depth; c++)
                entered[c] *= unscaled;         /* ELU's result again, where dropout has kept it */
        p->between->elu_gradient(a->gx + (first + i) * a->gx_stride, scratch->gradient + i * p->stride, entered,
                                 (const float *)a->x + (first + i) * a->x_stride, a->bias,
                                 a->dots ? a->dots + (first + i) * a->dots_stride : NULL, a->sums ? scratch->columns : NULL,
                                 a->heads, a->depth / a->heads, a->scaled);
    }
    for (int64_t c = 0; a->sums && c < a->depth; c++)
        columns[c] += scratch->columns[c];
}

/* Whether rows of a panel so many numbers apart can stay where they are while they are multiplied again and again: where they
 * share few sets of the first-level cache they push each other out of it. */
static int spread_over_sets(int64_t stride)
{
    return stride % 128 != 0;
}

static void block_backward(const hg_projection *p, const hg_scratch *scratch, const hg_sums *sums, int64_t first,
                           int64_t end)
{
    const hg_projection_args *a = p->a;
    const hg_ahead next_x = hg_next_block(a->x, a->x_type, a->x_stride, a->depth, first, end);
    const hg_ahead next_y = hg_next_block(a->y, a->y_type, a->y_stride, a->width, first, end), none = {0};
    const int64_t num = hg_least(a->rows - first, HG_ROWS);
    int64_t y_stride = a->y_stride;
    const char *block = (const char *)a->y + first * y_stride * hg_size_of(a->y_type);
    const float *gradient = hg_widened(&p->weights, scratch->wide, block, a->y_type, &y_stride, num, a->width);
    const void *left = scratch->entered, *right = gradient;
    int64_t right_stride = y_stride;
    const int as_it_is = !a->elu && a->rounded && a->x_type == HG_F32;
    if (a->y_sums)
        p->between->bias_gradient(sums->y_columns, gradient, y_stride, num, a->width);
    if (!as_it_is)
        enter(p, scratch->entered, first, num);
#if defined(HG_PAIRS)
    if (a->rounded) {
        hg_pair_rows(scratch->factors, p->stride, as_it_is ? (const float *)a->x + first * a->x_stride : scratch->entered,
                     as_it_is ? a->x_stride : p->stride, num, a->depth);
        left = scratch->factors;
    }
    if (a->rounded && a->gx) {
        right_stride = hg_words_of(1, a->width);
        hg_pair_columns(scratch->right, right_stride, gradient, y_stride, num, a->width);
        right = scratch->right;
    }
#endif
    for (int64_t c = 0; c < a->width; c += HG_PANEL) {
        const int in_place = !a->rounded && c + HG_PANEL <= a->width && spread_over_sets(y_stride);
        const void *panel = in_place ? (const void *)(gradient + c) : scratch->panel;
        if (!in_place)
            hg_pack_panel(a->rounded, scratch->panel, gradient + c, y_stride, 1, num, hg_least(a->width - c, HG_PANEL));
        hg_ask_for(&next_x, c / HG_PANEL, hg_panels_of(a->width));
        hg_ask_for(&next_y, c / HG_PANEL, hg_panels_of(a->width));
        hg_multiply_transposed(&p->weights, sums->weight + c * a->depth, left, p->stride, panel,
                               in_place ? y_stride : HG_PANEL, num, a->depth);
    }
    if (!a->gx)
        return;
    if (a->elu) {
        hg_multiply_block(&p->weights, scratch->gradient, p->stride, right, right_stride, NULL, num, 0, &none);
        leave(p, scratch, sums->columns, first, num);
    } else {
        hg_multiply_block(&p->weights, a->gx + first * a->gx_stride, a->gx_stride, right, right_stride, NULL, num, a->add,
                          &none);
    }
}

static hg_sums sums_of(const hg_projection_args *a, float *at)
{
    float *columns = at + hg_panels_of(a->width) * HG_PANEL * a->depth;
    return (hg_sums){at, columns, columns + a->depth};
}

/* Adds panel i of a share's sums to the gradient of the weights; behind the last: its columns to `sums` and `y_sums`. */
static void add_sums(const hg_projection_args *a, const hg_sums *sums, int64_t i)
{
    const float *from = sums->weight + i * a->depth * HG_PANEL;
    const int64_t num = hg_least(a->width - i * HG_PANEL, HG_PANEL);
    if (i == hg_panels_of(a->width)) {
        for (int64_t c = 0; a->sums && c < a->depth; c++)
            a->sums[c] += sums->columns[c];
        for (int64_t c = 0; a->y_sums && c < a->width; c++)
            a->y_sums[c] += sums->y_columns[c];
    } else {
        for (int64_t k = 0; k < a->depth; k++)
            for (int64_t c = 0; c < num; c++)
                a->g_weight[k * a->width + i * HG_PANEL + c] += from[k * HG_PANEL + c];
    }
}

/* All gradients from that of y. Returns 0, or -1: no memory. */
HG_EXPORT int hg_project_backward(int path, int num_threads, const hg_projection_args *a)
{
    hg_projection p = projection_of(path, a);
    const int64_t panels = hg_panels_of(a->width), width = a->gx ? a->depth : 0;
    const int64_t size = hg_panels_size(a->rounded, a->width, width), scratch = scratch_size(&p, 1);
    const int64_t blocks = (a->rows + HG_ROWS - 1) / HG_ROWS;
    const int64_t shares = hg_least((a->rows + HG_SHARE_ROWS - 1) / HG_SHARE_ROWS, HG_SHARES);
    const int64_t sums_size = (panels * HG_PANEL + 1) * a->depth + a->width;
    static _Thread_local hg_memory kept;
    num_threads = threads_for(a, num_threads);
    const int64_t fitting = HG_SUMS_BYTES / (sums_size * (int64_t)sizeof(float));
    const int64_t most = num_threads == 1 || fitting < num_threads ? num_threads : fitting, waves = (shares + most - 1) / most;
    const int64_t held = (shares + waves - 1) / waves;
    float *packed = hg_kept(&kept, (size + held * sums_size + num_threads * scratch) * (int64_t)sizeof *packed);
    if (!packed)
        return -1;
    p.weights = (hg_weights){packed, a->width, width, &p.table->products, a->rounded};
    float *all_sums = packed + size, *scratches = all_sums + held * sums_size;
    #pragma omp parallel num_threads(num_threads)
    {
        const hg_scratch mine = scratch_of(&p, scratches + omp_get_thread_num() * scratch, 1);
        hg_pack_weights(&p.weights, a->weight, a->weight_across, a->weight_down);
        for (int64_t wave = 0; wave < shares; wave += held) {
            const int64_t last = hg_least(wave + held, shares);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t s = wave; s < last; s++) {
                const hg_sums sums = sums_of(a, all_sums + (s - wave) * sums_size);
                memset(sums.weight, 0, (size_t)sums_size * sizeof *sums.weight);
                const int64_t end = (s + 1) * blocks / shares;
                for (int64_t b = s * blocks / shares; b < end; b++)
                    block_backward(&p, &mine, &sums, b * HG_ROWS, hg_least(end * HG_ROWS, a->rows));
            }
            #pragma omp for schedule(static)
            for (int64_t i = 0; i <= panels; i++)
                for (int64_t s = wave; s < last; s++) {
                    const hg_sums sums = sums_of(a, all_sums + (s - wave) * sums_size);
                    add_sums(a, &sums, i);
                }
        }
    }
    return 0;
}
