/* Projections in one pass over the rows: what they pass through, the product, and backwards all the gradients.
 *
 * A thread takes a block of rows, does everything to it while it is in its second-level cache, and takes the next: nothing but
 * the weights is shared, no thread waits for another before the end, and no step's result is written to memory for the next.
 *
 * Backwards each share of the rows has its own sums of the gradient of the weights. Shares come in waves, for the sake of
 * memory, and after each their sums are added in order; the number of shares being a property of the rows alone, no result
 * depends on the number of threads.
 */
#include "projection.h"

#include <omp.h>
#include <string.h>

#include "attention.h"
#include "products.h"

#define HG_PAD 16               /* numbers between rows: columns of rows of a power of two would share few sets of the cache */
#define HG_SHARES 64            /* at most: so many threads have work backwards */
#define HG_SHARE_ROWS 2048      /* at most, until there are HG_SHARES: their product outweighs clearing and adding their sums */
#define HG_SUMS_BYTES (1 << 24) /* of the sums that are held at a time, but for one of each thread */

typedef struct {
    const hg_projection_args *a;
    const hg_attention_kernels *between;
    hg_mask mask;
    float *packed;              /* the weights, backwards transposed */
    int64_t stride;             /* of a thread's rows */
} hg_projection;

/* What a thread works in. */
typedef struct {
    float *entered;             /* (HG_ROWS, stride): rows as they are multiplied */
    float *gradient;            /* backwards: (HG_ROWS, stride), of what was entered */
    float *panels;              /* backwards: (panels, HG_ROWS, HG_PANEL), the gradient of y */
    float *columns;             /* backwards: (depth), of gx */
} hg_room;

/* A share's sums. */
typedef struct {
    float *weight;              /* (panels, depth, HG_PANEL) */
    float *columns;             /* (depth) */
} hg_sums;

static hg_projection projection_of(int path, const hg_projection_args *a)
{
    return (hg_projection){.a = a, .between = hg_attention_table(path, HG_F32), .stride = a->depth + HG_PAD,
                           .mask = hg_mask_of(path, a->key, a->threshold, a->scale)};
}

static int threads_for(const hg_projection_args *a, int num_threads)
{
    return a->rows * a->depth * a->width < HG_FEW ? 1 : num_threads;
}

static void enter(const hg_projection *p, float *to, int64_t first, int64_t num)
{
    const hg_projection_args *a = p->a;
    for (int64_t i = 0; i < num; i++) {
        const float *from = a->x + (first + i) * a->x_stride;
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
    const int64_t panels = hg_panels_of(a->width), size = a->depth * HG_PANEL, room = HG_ROWS * p.stride;
    static _Thread_local hg_memory kept;
    num_threads = threads_for(a, num_threads);
    p.packed = hg_kept(&kept, (panels * size + num_threads * room) * (int64_t)sizeof *p.packed);
    if (!p.packed)
        return -1;
    #pragma omp parallel num_threads(num_threads)
    {
        float *entered = p.packed + panels * size + omp_get_thread_num() * room;
        hg_pack_panels(p.packed, a->weight, a->weight_down, a->weight_across, a->depth, a->width);
        #pragma omp for schedule(dynamic, 1)
        for (int64_t first = 0; first < a->rows; first += HG_ROWS) {
            const int64_t num = hg_least(a->rows - first, HG_ROWS);
            enter(&p, entered, first, num);
            hg_multiply_block(a->y + first * a->y_stride, a->y_stride, entered, p.stride, p.packed, NULL, num, a->depth,
                              a->width, 0);
        }
    }
    return 0;
}

/* Rows of gx and of dots, and their part of a share's columns, from the gradient of what was entered. */
static void leave(const hg_projection *p, const hg_room *room, float *columns, int64_t first, int64_t num)
{
    const hg_projection_args *a = p->a;
    const float unscaled = 1 / (float)a->scale;
    if (a->ids)
        hg_mask_rows(&p->mask, HG_F32, room->gradient, p->stride, a->ids + first, num, a->depth);
    if (a->sums)
        memset(room->columns, 0, (size_t)a->depth * sizeof *columns);
    for (int64_t i = 0; i < num; i++) {
        float *entered = room->entered + i * p->stride;
        if (a->ids)
            for (int64_t c = 0; c < a->depth; c++)
                entered[c] *= unscaled;         /* ELU's result again, where dropout has kept it */
        p->between->elu_gradient(a->gx + (first + i) * a->gx_stride, room->gradient + i * p->stride, entered,
                                 a->x + (first + i) * a->x_stride, a->bias,
                                 a->dots ? a->dots + (first + i) * a->dots_stride : NULL, a->sums ? room->columns : NULL,
                                 a->heads, a->depth / a->heads);
    }
    for (int64_t c = 0; a->sums && c < a->depth; c++)
        columns[c] += room->columns[c];
}

static void block_backward(const hg_projection *p, const hg_room *room, const hg_sums *sums, int64_t first)
{
#if defined(__x86_64__)
    const hg_projection_args *a = p->a;
    const int64_t num = hg_least(a->rows - first, HG_ROWS);
    const float *gradient = a->y + first * a->y_stride;
    enter(p, room->entered, first, num);
    for (int64_t i = 0; i < hg_panels_of(a->width); i++) {
        float *panel = room->panels + i * HG_ROWS * HG_PANEL;
        hg_pack_panel(panel, gradient + i * HG_PANEL, a->y_stride, 1, num, hg_least(a->width - i * HG_PANEL, HG_PANEL));
        hg_multiply_transposed_avx2(sums->weight + i * a->depth * HG_PANEL, room->entered, p->stride, panel, num, a->depth);
    }
    if (!a->gx)
        return;
    float *to = a->elu ? room->gradient : a->gx + first * a->gx_stride;
    hg_multiply_block(to, a->elu ? p->stride : a->gx_stride, gradient, a->y_stride, p->packed, NULL, num, a->width, a->depth, 0);
    if (a->elu)
        leave(p, room, sums->columns, first, num);
#else
    (void)p, (void)room, (void)sums, (void)first, (void)leave;          /* see hg_multiplies */
#endif
}

static hg_sums sums_of(const hg_projection_args *a, float *at)
{
    return (hg_sums){at, at + hg_panels_of(a->width) * HG_PANEL * a->depth};
}

/* Adds panel i of a share's sums to the gradient of the weights; behind the last: its columns to `sums`. */
static void add_sums(const hg_projection_args *a, const hg_sums *sums, int64_t i)
{
    const float *from = sums->weight + i * a->depth * HG_PANEL;
    const int64_t num = hg_least(a->width - i * HG_PANEL, HG_PANEL);
    if (i == hg_panels_of(a->width))
        for (int64_t c = 0; a->sums && c < a->depth; c++)
            a->sums[c] += sums->columns[c];
    else
        for (int64_t k = 0; k < a->depth; k++)
            for (int64_t c = 0; c < num; c++)
                a->g_weight[k * a->width + i * HG_PANEL + c] += from[k * HG_PANEL + c];
}

/* All gradients from that of y. Returns 0, or -1: no memory. */
HG_EXPORT int hg_project_backward(int path, int num_threads, const hg_projection_args *a)
{
    hg_projection p = projection_of(path, a);
    const int64_t panels = hg_panels_of(a->width), size = a->width * HG_PANEL, back = a->gx ? hg_panels_of(a->depth) : 0;
    const int64_t blocks = (a->rows + HG_ROWS - 1) / HG_ROWS;
    const int64_t shares = hg_least((a->rows + HG_SHARE_ROWS - 1) / HG_SHARE_ROWS, HG_SHARES);
    const int64_t sums_size = (panels * HG_PANEL + 1) * a->depth;
    const int64_t room_size = HG_ROWS * (2 * p.stride + panels * HG_PANEL) + a->depth;
    static _Thread_local hg_memory kept;
    num_threads = threads_for(a, num_threads);
    const int64_t fitting = HG_SUMS_BYTES / (sums_size * (int64_t)sizeof *p.packed);
    const int64_t most = num_threads == 1 || fitting < num_threads ? num_threads : fitting, waves = (shares + most - 1) / most;
    const int64_t held = (shares + waves - 1) / waves;
    p.packed = hg_kept(&kept, (back * size + held * sums_size + num_threads * room_size) * (int64_t)sizeof *p.packed);
    if (!p.packed)
        return -1;
    float *all_sums = p.packed + back * size, *rooms = all_sums + held * sums_size;
    #pragma omp parallel num_threads(num_threads)
    {
        float *mine = rooms + omp_get_thread_num() * room_size, *behind = mine + 2 * HG_ROWS * p.stride;
        const hg_room room = {mine, mine + HG_ROWS * p.stride, behind, behind + panels * HG_ROWS * HG_PANEL};
        hg_pack_panels(p.packed, a->weight, a->weight_across, a->weight_down, a->width, a->gx ? a->depth : 0);
        for (int64_t wave = 0; wave < shares; wave += held) {
            const int64_t last = hg_least(wave + held, shares);
            #pragma omp for schedule(dynamic, 1)
            for (int64_t s = wave; s < last; s++) {
                const hg_sums sums = sums_of(a, all_sums + (s - wave) * sums_size);
                memset(sums.weight, 0, (size_t)sums_size * sizeof *sums.weight);
                for (int64_t b = s * blocks / shares; b < (s + 1) * blocks / shares; b++)
                    block_backward(&p, &room, &sums, b * HG_ROWS);
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
