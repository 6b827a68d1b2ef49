/* A layer's convolution in one call and one parallel region, of the kernels of gather.c, products.c, projection.c and rowwise.c.
 *
 * Forwards a thread takes a block of rows, and gathers and multiplies them while they are in its second-level cache. Backwards
 * all blocks add to the gradients of the weights: the kernels take turns, for a tile of rows that stays in the caches.
 */
#include <omp.h>
#include <string.h>

#include "products.h"

#define HG_BLOCK (2 * HG_ROWS)  /* rows that a thread takes at a time, forwards: half of it and eight times are as fast */

static _Thread_local hg_memory kept, kept_sums;

/* Row `first` of a matrix, or NULL. */
static void *row_of(const void *x, int type, int64_t stride, int64_t first)
{
    return x ? (char *)x + first * stride * hg_size_of(type) : NULL;
}

/* The first computed row whose place is `row` or later. */
static int64_t computed_from(const hg_convolution_args *a, int64_t row)
{
    int64_t low = 0, high = a->num_outputs;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (a->outputs[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What the blocks of a call, or backwards its tiles, have in common. */
typedef struct {
    const hg_convolution_args *a;
    int path, num_threads;
    hg_weights neighbour, own;  /* backwards transposed */
    char *hub_sums;
    int64_t stride;             /* of a thread's memory for a block, which holds its aggregate, and then its rows of x */
    const float *bias;          /* as wide as all panels, or NULL */
    hg_projection_args rows;    /* backwards: of a projection, but for what differs from tile to tile; its memory */
    float *memory;
} hg_convolution;

/* Rows [first, first + num) of the result. scratch: memory for a block, and behind it for a narrow result as float32. */
static void convolve_block(const hg_convolution *p, float *scratch, int64_t first, int64_t num)
{
    const hg_convolution_args *a = p->a;
    const int64_t x_bytes = hg_size_of(a->x_type), aggregated = a->gather || a->sums;
    float *sum = scratch, *y = scratch + HG_BLOCK * p->stride;
    int64_t sum_stride = p->stride, y_stride = a->width + HG_PAD, x_stride = a->x_stride;
    if (a->y_type == HG_F32) {
        y = (float *)a->y + first * a->y_stride;
        y_stride = a->y_stride;
    }
    if (!a->neighbour) {
        sum = y;
        sum_stride = y_stride;
    }
    if (a->gather) {
        hg_gather_args of_block = *a->gather;
        of_block.y = sum - first * sum_stride;
        of_block.y_stride = sum_stride;
        hg_gather_rows(p->path, &of_block, p->hub_sums, first, first + num);
    }
    for (int64_t i = 0; a->sums && (a->neighbour || a->sums != a->y) && i < num; i++)       /* y may be where they are */
        memcpy(sum + i * sum_stride, a->sums + (first + i) * a->sums_stride, (size_t)a->streamed * sizeof *sum);
    const void *x = row_of(a->x, a->x_type, x_stride, a->outputs ? 0 : first);
    if (a->neighbour) {
        const hg_ahead mine = {x, a->own && !a->outputs ? num : 0, x_stride * x_bytes, a->depth * x_bytes};
        hg_multiply_block(&p->neighbour, y, y_stride, sum, sum_stride, p->bias, num, 0, &mine);
    }
    for (int64_t i = 0; aggregated && !a->neighbour && p->bias && i < num; i++)
        for (int64_t c = 0; c < a->width; c++)
            y[i * y_stride + c] += p->bias[c];
    if (a->own && (a->outputs || a->x_type != HG_F32)) {
        hg_pack(p->path, 1, scratch, p->stride, HG_F32, x, x_stride, a->x_type, a->outputs ? a->outputs + first : NULL, num,
                a->depth, NULL);
        x = scratch;
        x_stride = p->stride;
    }
    const int64_t next = first + num, left = a->neighbour || a->outputs ? 0 : hg_least(a->rows - next, HG_BLOCK);
    const hg_ahead ahead = {row_of(a->x, a->x_type, a->x_stride, next), left, a->x_stride * x_bytes, a->depth * x_bytes};
    if (a->own)
        hg_multiply_block(&p->own, y, y_stride, x, x_stride, aggregated ? NULL : p->bias, num, aggregated, &ahead);
    if (a->y_type != HG_F32)
        hg_pack(p->path, 1, row_of(a->y, a->y_type, a->y_stride, first), a->y_stride, a->y_type, y, y_stride, HG_F32, NULL, num,
                a->width, NULL);
}

/* y = aggregate neighbour + x own + bias. Where neighbour is NULL the aggregate itself is added, if there is one. Each element is
 * one sum over the columns of a product in order, whatever the number of threads. Returns 0, or -1: no memory. */
HG_EXPORT int hg_convolve(int path, int num_threads, const hg_convolution_args *a)
{
    const int64_t columns = hg_panels_of(a->width) * HG_PANEL;
    const int64_t of_neighbour = a->neighbour ? columns * a->streamed : 0, of_own = a->own ? columns * a->depth : 0;
    const int64_t common = of_neighbour + of_own + columns, stride = (a->streamed > a->depth ? a->streamed : a->depth) + HG_PAD;
    const int64_t scratch = HG_BLOCK * (stride + (a->y_type == HG_F32 ? 0 : a->width + HG_PAD));
    const int64_t sums = a->gather ? (a->gather->indptr[a->rows] - a->gather->indptr[0]) * a->streamed : 0;
    if (a->rows * (of_neighbour + of_own) + sums < HG_FEW_PRODUCTS)
        num_threads = 1;
    float *packed = hg_kept(&kept, (common + num_threads * scratch) * (int64_t)sizeof *packed);
    const hg_product_kernels *kernels = &hg_table(path)->products;
    hg_convolution p = {a, path, num_threads, {packed, a->streamed, a->width, kernels},
                        {packed + of_neighbour, a->depth, a->width, kernels}, .stride = stride};
    if (!packed || (a->gather && hg_hub_sums(a->gather, &kept_sums, &p.hub_sums)))
        return -1;
    float *bias = packed + of_neighbour + of_own;
    for (int64_t c = 0; a->bias && c < columns; c++)
        bias[c] = c < a->width ? a->bias[c] : 0;
    p.bias = a->bias ? bias : NULL;
    #pragma omp parallel num_threads(num_threads)
    {
        if (a->neighbour)
            hg_pack_weights(&p.neighbour, a->neighbour, a->neighbour_down, a->neighbour_across);
        if (a->own)
            hg_pack_weights(&p.own, a->own, a->own_down, a->own_across);
        if (a->gather)
            hg_sum_hubs(path, a->gather, p.hub_sums);
        #pragma omp for schedule(dynamic, 1)
        for (int64_t first = 0; first < a->rows; first += HG_BLOCK)
            convolve_block(&p, packed + common + omp_get_thread_num() * scratch, first, hg_least(a->rows - first, HG_BLOCK));
    }
    return 0;
}

/* gx += gy W_s', g_own += x' gy, g_bias += the sums of gy, of the rows of a tile that are computed. */
static void project_own(const hg_convolution *p, hg_projection_args rows, int64_t first)
{
    const hg_convolution_args *a = p->a;
    const hg_kernels *table = hg_table(p->path);
    const int64_t from = a->outputs ? computed_from(a, first) : first, gx_stride = rows.gx_stride;
    const int32_t *outputs = a->outputs ? a->outputs + from : NULL;
    float *gx = rows.gx;
    rows.y = row_of(a->y, a->y_type, a->y_stride, from);
    rows.g_weight = a->g_own;
    rows.y_sums = a->g_bias;
    rows.add = gx && !outputs;
    if (outputs) {
        const void *x = row_of(a->x, a->x_type, a->x_stride, -a->first);
        rows.rows = computed_from(a, first + rows.rows) - from;
        #pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < rows.rows; i++)
            table->copy_row[a->x_type][HG_F32](a->taken + i * a->depth, row_of(x, a->x_type, a->x_stride, outputs[i]), a->depth, 1);
        rows.x = a->taken;
        rows.x_type = HG_F32;
        rows.gx = gx ? a->apart : NULL;
        rows.x_stride = rows.gx_stride = a->depth;
    }
    if (rows.rows > 0)
        hg_project_rows_backward(p->path, p->num_threads, &rows, &p->own, p->memory);
    if (!gx || !outputs)
        return;
    #pragma omp for schedule(static)
    for (int64_t i = 0; i < rows.rows; i++)
        table->add_row[HG_F32](gx + (outputs[i] - first) * gx_stride, a->apart + i * a->depth, a->depth, 1);
}

/* All gradients of a tile's rows, from row `first` on, by every thread. A projection has them wait before it writes, and when
 * all have read what it reads: only then does anybody write that for the next tile. */
static void convolve_tile(const hg_convolution *p, int64_t first)
{
    const hg_convolution_args *a = p->a;
    const hg_kernels *table = hg_table(p->path);
    hg_projection_args rows = p->rows;
    char *gx = row_of(a->gx, a->x_type, a->gx_stride, first);
    rows.rows = hg_least(a->tile, a->rows - first);
    rows.x = row_of(a->x, a->x_type, a->x_stride, first);
    rows.gx = a->spare ? a->spare : (float *)gx;
    rows.gx_stride = a->spare ? a->depth : a->gx_stride;
    hg_projection_args of_t = rows;
    of_t.y = a->gather ? a->memory : row_of(a->sums, HG_F32, a->sums_stride, first);
    of_t.y_stride = a->gather ? a->streamed : a->sums_stride;
    of_t.y_type = HG_F32;
    of_t.g_weight = a->g_neighbour;
    if (a->gather) {
        hg_gather_args of_tile = *a->gather;
        of_tile.y = a->memory - first * a->streamed;
        of_tile.y_stride = a->streamed;
        hg_share_rows(p->path, p->num_threads, &of_tile, p->hub_sums, first, rows.rows);
    }
    hg_project_rows_backward(p->path, p->num_threads, &of_t, &p->neighbour, p->memory);
    if (a->g_own)
        project_own(p, rows, a->first + first);
    #pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < (a->spare ? rows.rows : 0); i++) {
        const float *from = a->spare + i * a->depth;
        void *to = row_of(gx, a->x_type, a->gx_stride, i);
        if (a->relu)
            table->relu_gradient[a->x_type](to, from, to, a->depth, a->scale);
        else
            table->copy_row[HG_F32][a->x_type](to, from, a->depth, 1);
    }
}

/* All gradients, from that of y and its aggregate along the edges reversed; rows are those of x. With `relu`, gx is x.
 * Returns 0, or -1: no memory. */
HG_EXPORT int hg_convolve_backward(int path, int num_threads, const hg_convolution_args *a)
{
    const int64_t width = a->gx ? a->depth : 0, size = hg_panels_size(a->width, width);
    if (a->rows * a->depth * a->width < HG_FEW_PRODUCTS)
        num_threads = 1;
    hg_convolution p = {a, path, num_threads, .rows = {.rows = hg_least(a->tile, a->rows), .depth = a->depth, .width = a->width,
                        .x_type = a->x_type, .x_stride = a->x_stride, .y_type = a->y_type, .y_stride = a->y_stride}};
    float *packed = hg_kept(&kept, (2 * size + hg_memory_backward(path, num_threads, &p.rows)) * (int64_t)sizeof *packed);
    if (!packed || (a->gather && hg_hub_sums(a->gather, &kept_sums, &p.hub_sums)))
        return -1;
    p.neighbour = (hg_weights){packed, a->width, width, &hg_table(path)->products};
    p.own = (hg_weights){packed + size, a->width, width, p.neighbour.kernels};
    p.memory = packed + 2 * size;
    #pragma omp parallel num_threads(num_threads)
    {
        hg_pack_weights(&p.neighbour, a->neighbour, a->neighbour_across, a->neighbour_down);
        if (a->own)
            hg_pack_weights(&p.own, a->own, a->own_across, a->own_down);
        if (a->gather)
            hg_sum_hubs(path, a->gather, p.hub_sums);
        for (int64_t first = 0; first < a->rows; first += a->tile)
            convolve_tile(&p, first);
    }
    return 0;
}
