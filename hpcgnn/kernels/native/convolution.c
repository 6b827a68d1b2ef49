/* A layer's convolution in one call, of the kernels of gather.c, products.c, projection.c and rowwise.c. What the caller does
 * between two calls is serial, and every parallel region has threads wait at its end.
 *
 * Forwards a thread takes a block of rows, and gathers and multiplies them while they are in its second-level cache. Backwards
 * all blocks add to the gradients of the weights: the kernels take turns, for a tile of rows that stays in the caches.
 */
#include <omp.h>
#include <string.h>

#include "products.h"

#define HG_BLOCK (2 * HG_ROWS)  /* rows that a thread takes at a time, forwards: half of it and eight times are as fast */

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

/* What the blocks of a call have in common. */
typedef struct {
    const hg_convolution_args *a;
    int path;
    hg_weights neighbour, own;
    const float *bias;          /* as wide as all panels, or NULL */
    char *hub_sums;
    int64_t stride;             /* of a thread's memory for a block, which holds its aggregate, and then its rows of x */
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

/* y = aggregate neighbour + x own + bias. Where neighbour is NULL the aggregate itself is added, if there is one. Returns 0, or
 * -1: no memory. */
HG_EXPORT int hg_convolve(int path, int num_threads, const hg_convolution_args *a)
{
    static _Thread_local hg_memory kept, kept_sums;
    const int64_t columns = hg_panels_of(a->width) * HG_PANEL;
    const int64_t of_neighbour = a->neighbour ? columns * a->streamed : 0, of_own = a->own ? columns * a->depth : 0;
    const int64_t common = of_neighbour + of_own + columns, stride = (a->streamed > a->depth ? a->streamed : a->depth) + HG_PAD;
    const int64_t scratch = HG_BLOCK * (stride + (a->y_type == HG_F32 ? 0 : a->width + HG_PAD));
    const int64_t sums = a->gather ? (a->gather->indptr[a->rows] - a->gather->indptr[0]) * a->streamed : 0;
    if (a->rows * (of_neighbour + of_own) + sums < HG_FEW_PRODUCTS)
        num_threads = 1;
    float *packed = hg_kept(&kept, (common + num_threads * scratch) * (int64_t)sizeof *packed);
    const hg_product_kernels *kernels = &hg_table(path)->products;
    hg_convolution p = {a, path, {packed, a->streamed, a->width, kernels}, {packed + of_neighbour, a->depth, a->width, kernels},
                        NULL, NULL, stride};
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

/* out (rows, width) = x (rows, depth) weight (depth, width), added to what out holds if `add`, plus bias (width) unless NULL. x
 * is of x_type, HG_F32 or HG_BF16; element (k, c) of weight stands at k * weight_down + c * weight_across. Each element is
 * one sum over k in order, whatever the number of threads. Returns 0, or -1: no memory. */
HG_EXPORT int hg_multiply(int path, int num_threads, float *out, int64_t out_stride, const void *x, int x_type,
                          int64_t x_stride, const float *weight, int64_t weight_down, int64_t weight_across,
                          const float *bias, int64_t rows, int64_t depth, int64_t width, int add)
{
    /* A product without columns has no weights, but NULL would mean that there is no product. */
    const hg_convolution_args a = {.sums = add ? out : NULL, .x = x, .y = out, .own = depth ? weight : out, .bias = bias,
                                   .rows = rows, .streamed = add ? width : 0, .depth = depth, .width = width,
                                   .sums_stride = out_stride, .x_stride = x_stride, .y_stride = out_stride, .own_down = weight_down,
                                   .own_across = weight_across, .x_type = x_type};
    return hg_convolve(path, num_threads, &a);
}

/* Gradients of one product of a tile: gx = y weight' (or added to it), g_weight += x' y, y_sums += the columns of y. */
static int project(int path, int num_threads, const hg_convolution_args *a, float *gx, int64_t gx_stride, const void *x,
                   int x_type, int64_t x_stride, const void *y, int y_type, int64_t y_stride, int64_t num, int own, int add)
{
    const hg_projection_args of_tile = {.x = x, .y = (void *)y, .gx = gx, .g_weight = own ? a->g_own : a->g_neighbour,
                                        .rows = num, .depth = a->depth, .width = a->width, .heads = 1, .x_stride = x_stride,
                                        .y_stride = y_stride, .gx_stride = gx_stride, .scale = 1, .add = add, .x_type = x_type,
                                        .y_type = y_type, .weight = own ? a->own : a->neighbour,
                                        .weight_down = own ? a->own_down : a->neighbour_down,
                                        .weight_across = own ? a->own_across : a->neighbour_across,
                                        .y_sums = own ? a->g_bias : NULL};
    return num == 0 ? 0 : hg_project_backward(path, num_threads, &of_tile);
}

/* The same for W_s, of the rows of a tile that are computed. */
static int project_own(int path, int num_threads, const hg_convolution_args *a, float *gx, int64_t gx_stride, const void *x,
                       int64_t first, int64_t num)
{
    if (!a->outputs)
        return project(path, num_threads, a, gx, gx_stride, x, a->x_type, a->x_stride,
                       row_of(a->y, a->y_type, a->y_stride, a->first + first), a->y_type, a->y_stride, num, 1, gx != NULL);
    const int64_t from = computed_from(a, a->first + first), some = computed_from(a, a->first + first + num) - from;
    hg_pack(path, num_threads, a->taken, a->depth, HG_F32, row_of(a->x, a->x_type, a->x_stride, -a->first), a->x_stride,
            a->x_type, a->outputs + from, some, a->depth, NULL);
    if (project(path, num_threads, a, gx ? a->apart : NULL, a->depth, a->taken, HG_F32, a->depth,
                row_of(a->y, a->y_type, a->y_stride, from), a->y_type, a->y_stride, some, 1, 0))
        return -1;
    for (int64_t i = 0; gx && i < some; i++)
        a->places[i] = (int32_t)(a->outputs[from + i] - a->first - first);
    if (gx)
        hg_add_rows(path, num_threads, HG_F32, gx, gx_stride, a->places, a->apart, a->depth, NULL, NULL, some, a->depth, 1);
    return 0;
}

/* All gradients, from that of y and its aggregate along the edges reversed; rows are those of x. With `relu`, gx is x.
 * Returns 0, or -1: no memory. */
HG_EXPORT int hg_convolve_backward(int path, int num_threads, const hg_convolution_args *a)
{
    for (int64_t first = 0; first < a->rows; first += a->tile) {
        const int64_t num = hg_least(a->tile, a->rows - first), gx_stride = a->spare ? a->depth : a->gx_stride;
        const float *t = row_of(a->sums, HG_F32, a->sums_stride, first);
        int64_t stride = a->sums_stride;
        if (a->gather) {
            hg_gather_args of_tile = *a->gather;
            of_tile.y = a->memory;
            of_tile.y_stride = a->streamed;
            of_tile.indptr += first;
            of_tile.num_rows = num;
            of_tile.row_scale = row_of(of_tile.row_scale, HG_F32, 1, first);
            if (hg_gather(path, num_threads, &of_tile))
                return -1;
            t = a->memory;
            stride = a->streamed;
        }
        const void *x = row_of(a->x, a->x_type, a->x_stride, first);
        void *result = row_of(a->gx, a->x_type, a->gx_stride, first);
        float *gx = a->spare ? a->spare : result;
        if (project(path, num_threads, a, gx, gx_stride, x, a->x_type, a->x_stride, t, HG_F32, stride, num, 0, 0) ||
            (a->g_own && project_own(path, num_threads, a, gx, gx_stride, x, first, num)))
            return -1;
        if (a->relu)
            hg_relu_gradient(path, num_threads, a->x_type, result, a->gx_stride, gx, gx_stride, x, a->x_stride, num, a->depth,
                             a->scale);
        else if (a->spare)
            hg_pack(path, num_threads, result, a->gx_stride, a->x_type, gx, gx_stride, HG_F32, NULL, num, a->depth, NULL);
    }
    return 0;
}
