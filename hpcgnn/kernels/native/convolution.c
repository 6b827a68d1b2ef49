/* A layer's convolution tile by tile: the kernels of gather.c, products.c, projection.c and rowwise.c in turn.
 *
 * A tile of rows stays in the caches from one step to the next. The caller makes one call for all tiles: what it does
 * between two calls is serial, and many threads want small tiles, of which there are many.
 */
#include <string.h>

#include "hg.h"

/* Rows [first, first + num) of a matrix of float32. */
static float *rows_of(const float *x, int64_t stride, int64_t first)
{
    return x ? (float *)x + first * stride : NULL;
}

/* Where the aggregate of a tile stands: gathered to `to`, or among the sums. NULL: no memory. */
static float *aggregate(int path, int num_threads, const hg_convolution_args *a, int64_t first, int64_t num, float *to,
                        int64_t stride)
{
    if (!a->gather)
        return rows_of(a->sums, a->sums_stride, first);
    hg_gather_args of_tile = *a->gather;
    of_tile.y = to;
    of_tile.y_stride = stride;
    of_tile.indptr += first;
    of_tile.num_rows = num;
    if (of_tile.row_scale)
        of_tile.row_scale = (const float *)of_tile.row_scale + first;
    return hg_gather(path, num_threads, &of_tile) ? NULL : to;
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

/* y = aggregate + bias, of which y may be the aggregate. */
static void add_bias(int num_threads, float *y, int64_t y_stride, const float *from, int64_t from_stride, const float *bias,
                     int64_t rows, int64_t width)
{
    if (y == from && !bias)
        return;
    #pragma omp parallel for schedule(static) num_threads(rows * width < HG_SMALL ? 1 : num_threads)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++)
            y[i * y_stride + c] = bias ? from[i * from_stride + c] + bias[c] : from[i * from_stride + c];
}

/* y = aggregate neighbour + x own + bias, or where neighbour is NULL y = aggregate + x own + bias. Returns 0, or -1: no
 * memory. */
HG_EXPORT int hg_convolve(int path, int num_threads, const hg_convolution_args *a)
{
    for (int64_t first = 0; first < a->rows; first += a->tile) {
        const int64_t num = hg_least(a->tile, a->rows - first), y_stride = a->y_stride;
        float *y = rows_of(a->y, y_stride, first), *to = a->neighbour ? a->memory : y;
        int64_t stride = a->gather ? a->neighbour ? a->streamed : y_stride : a->sums_stride;
        float *sum = aggregate(path, num_threads, a, first, num, to, stride);
        if (!sum)
            return -1;
        if (a->neighbour && sum == y) {         /* where the product is written to */
            add_bias(num_threads, a->memory, a->streamed, sum, stride, NULL, num, a->streamed);
            sum = a->memory;
            stride = a->streamed;
        }
        if (!a->neighbour)
            add_bias(num_threads, y, y_stride, sum, stride, a->bias, num, a->width);
        else if (hg_multiply(path, num_threads, y, y_stride, sum, HG_F32, stride, a->neighbour, a->neighbour_down,
                             a->neighbour_across, a->bias, num, a->streamed, a->width, 0))
            return -1;
        if (!a->own)
            continue;
        const float *x = rows_of(a->x, a->x_stride, first);
        int64_t x_stride = a->x_stride;
        if (a->outputs) {
            hg_pack(path, num_threads, a->taken, a->depth, HG_F32, a->x, x_stride, HG_F32, a->outputs + first, num, a->depth,
                    NULL);
            x = a->taken;
            x_stride = a->depth;
        }
        if (hg_multiply(path, num_threads, y, y_stride, x, HG_F32, x_stride, a->own, a->own_down, a->own_across,
                        NULL, num, a->depth, a->width, 1))
            return -1;
    }
    return 0;
}

/* Gradients of one product of a tile: gx = y weight' (or added to it), g_weight += x' y, y_sums += the columns of y. */
static int project(int path, int num_threads, const hg_convolution_args *a, float *gx, int64_t gx_stride, float *g_weight,
                   const float *x, int64_t x_stride, const float *y, int64_t y_stride, int64_t num, int own, int add)
{
    hg_projection_args of_tile = {.x = x, .y = (void *)y, .gx = gx, .g_weight = g_weight, .rows = num, .depth = a->depth,
                                  .width = a->width, .heads = 1, .x_stride = x_stride, .y_stride = y_stride,
                                  .gx_stride = gx_stride, .scale = 1, .add = add, .x_type = HG_F32,
                                  .y_type = HG_F32, .weight = own ? a->own : a->neighbour,
                                  .weight_down = own ? a->own_down : a->neighbour_down,
                                  .weight_across = own ? a->own_across : a->neighbour_across};
    of_tile.y_sums = own ? a->g_bias : NULL;
    return num == 0 ? 0 : hg_project_backward(path, num_threads, &of_tile);
}

/* The same for W_s, of the rows of a tile that are computed. */
static int project_own(int path, int num_threads, const hg_convolution_args *a, float *gx, int64_t gx_stride, const float *x,
                       int64_t first, int64_t num)
{
    if (!a->outputs)
        return project(path, num_threads, a, gx, gx_stride, a->g_own, x, a->x_stride, rows_of(a->y, a->y_stride, a->first + first),
                       a->y_stride, num, 1, gx != NULL);
    const int64_t from = computed_from(a, a->first + first), some = computed_from(a, a->first + first + num) - from;
    const float *y = rows_of(a->y, a->y_stride, from);
    hg_pack(path, num_threads, a->taken, a->depth, HG_F32, a->x - a->first * a->x_stride, a->x_stride, HG_F32,
            a->outputs + from, some, a->depth, NULL);
    if (project(path, num_threads, a, gx ? a->apart : NULL, a->depth, a->g_own, a->taken, a->depth, y, a->y_stride, some, 1, 0))
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
        const int64_t num = hg_least(a->tile, a->rows - first), stride = a->gather ? a->streamed : a->sums_stride;
        const float *t = aggregate(path, num_threads, a, first, num, a->memory, stride);
        const float *x = rows_of(a->x, a->x_stride, first);
        float *gx = a->relu ? a->spare : rows_of(a->gx, a->gx_stride, first);
        const int64_t gx_stride = a->relu ? a->depth : a->gx_stride;
        if (!t || project(path, num_threads, a, gx, gx_stride, a->g_neighbour, x, a->x_stride, t, stride, num, 0, 0))
            return -1;
        if (a->g_own && project_own(path, num_threads, a, gx, gx_stride, x, first, num))
            return -1;
        if (a->relu)
            hg_relu_gradient(path, num_threads, HG_F32, (void *)x, a->x_stride, gx, gx_stride, x, a->x_stride, num, a->depth,
                             a->scale);
    }
    return 0;
}
