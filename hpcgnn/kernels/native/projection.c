/* Projections in one pass over the rows: what they pass through, the product, and backwards all the gradients.
 *
 * A thread takes a block of rows, does everything to it while it is in its second-level cache, and takes the next:
 * nothing but the weights is shared, no thread waits for another before the end, and no step's result is written to
 * memory for the next.
 *
 * Backwards each share of the rows has its own sums of the gradient of the weights. Shares come in waves, for the sake
 * of memory, and after each their sums are added in order; the number of shares being a property of the rows alone, no
 * result depends on the number of threads.
 *
 * Where shares are too few for the threads, the gradient of the weights is cut as well: a task then makes some rows and
 * columns of a share's sums, from just the columns of x and of the gradient of y that these need, and gx is made block by
 * block apart. Every element is the same sum in the same order as in one pass.
 */
#include "hg.h"

#include <omp.h>
#include <string.h>

#include "products.h"
#include "table.h"

#define HG_TURN 4               /* blocks that a thread takes at a time, forwards, if there are many: it asks for the next one's rows */
#define HG_SHARES 64            /* at most: so many threads have work backwards */
#define HG_SHARE_ROWS 2048      /* at most, until there are HG_SHARES: their product outweighs clearing and adding their sums */
#define HG_SUMS_BYTES (17 << 20) /* of the sums that are held at a time, but for one of each thread: HG_SHARES of 256 x 256 */
#define HG_PART 16              /* rows of the weights that a task makes at least, columns being HG_PANEL at least */
#define HG_ENOUGH_TASKS 6       /* for each thread: what one more at the end costs is then little */

/* How the sums of the weights' gradient are cut into tasks: `down` times `across` parts of each share. */
typedef struct {
    int64_t down, across;
} hg_cut;

typedef struct {
    const hg_projection_args *a;
    const hg_kernels *table;
    const hg_between_kernels *between;
    hg_mask mask;
    hg_weights weights;         /* backwards transposed */
    int64_t stride;             /* of a thread's rows */
    int64_t blocks, shares;     /* backwards, as all that follows */
    int64_t most, held;         /* shares whose sums there is memory for, and those that are made at a time */
    int64_t sums_size, scratch; /* numbers of a share's sums, and of a thread's scratch */
    int64_t apart;              /* of the sums of each block's columns, which wait for their share's where gx is made apart */
    hg_cut cut;
} hg_projection;

/* What a thread works in. */
typedef struct {
    float *entered;             /* (HG_ROWS, stride): rows as they are multiplied */
    float *gradient;            /* backwards: (HG_ROWS, stride), of what was entered */
    float *columns;             /* backwards: (depth), of gx */
    float *panels;              /* backwards: (HG_ROWS, HG_PANEL) each, of the gradient of y */
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
    return (hg_projection){.a = a, .table = table, .between = &table->of[HG_F32]->between, .stride = a->depth + HG_PAD,
                           .mask = hg_mask_of(path, a->key, a->threshold, a->scale)};
}

/* Numbers of 32 bits in a scratch. */
static int64_t scratch_size(const hg_projection *p)
{
    const int64_t wide = p->a->y_type == HG_BF16 ? p->a->width : 0;
    return HG_ROWS * (2 * p->stride + p->table->products.columns + wide) + p->a->depth;
}

static hg_scratch scratch_of(const hg_projection *p, float *at)
{
    float *gradient = at + HG_ROWS * p->stride, *panels = gradient + HG_ROWS * p->stride;
    float *columns = panels + HG_ROWS * p->table->products.columns;
    return (hg_scratch){at, gradient, columns, panels, columns + p->a->depth};
}

/* Columns [begin, end) of rows as they are multiplied, to `to` from its first column on. begin: a multiple of 4. */
static void enter(const hg_projection *p, float *to, int64_t first, int64_t num, int64_t begin, int64_t end)
{
    const hg_projection_args *a = p->a;
    const void *block = (const char *)a->x + (first * a->x_stride + begin) * hg_size_of(a->x_type);
    for (int64_t i = 0; i < num; i++) {
        const void *from = (const char *)block + i * a->x_stride * hg_size_of(a->x_type);
        if (a->elu)
            p->between->elu(to + i * p->stride, from, end - begin);
        else
            p->table->copy_row[a->x_type][HG_F32](to + i * p->stride, from, end - begin, 1);
    }
    if (a->ids)
        hg_mask_rows(&p->mask, HG_F32, to, p->stride, a->ids + first, a->part ? a->part + first : NULL, num, begin, end - begin);
}

/* y = what x passes through, times the weights, plus y_sums; added to y if `add`, which is of HG_F32 then. `beside` is added in the
 * same pass. Returns 0, or -1: no memory. */
HG_EXPORT int hg_project(int path, int num_threads, const hg_projection_args *a)
{
    const hg_projection_args *beside = a->beside;
    hg_projection parts[] = {projection_of(path, a), projection_of(path, beside ? beside : a)};
    const int64_t columns = hg_panels_of(a->width) * HG_PANEL, depth = a->depth + (beside ? beside->depth : 0);
    const int64_t stride = parts[parts[1].stride > parts[0].stride].stride, num_parts = beside ? 2 : 1;
    const int64_t bias = columns * depth, size = bias + columns, narrow = a->y_type == HG_F32 ? 0 : HG_ROWS * a->width;
    const int64_t scratch = narrow + HG_ROWS * stride;
    static _Thread_local hg_memory kept;
    num_threads = a->rows * depth * a->width < HG_FEW_PRODUCTS ? 1 : num_threads;
    float *packed = hg_kept(&kept, (size + num_threads * scratch) * (int64_t)sizeof *packed);
    if (!packed)
        return -1;
    for (int64_t c = 0; a->y_sums && c < columns; c++)
        packed[bias + c] = c < a->width ? a->y_sums[c] : 0;
    for (int64_t k = 0, at = 0; k < num_parts; at += columns * parts[k++].a->depth)
        parts[k].weights = (hg_weights){packed + at, parts[k].a->depth, a->width, &parts[k].table->products};
    const int64_t fair = a->rows / (4 * HG_ROWS * num_threads), turn = fair < 1 ? 1 : hg_least(fair, HG_TURN);
    #pragma omp parallel num_threads(num_threads)
    {
        float *mine = packed + size + omp_get_thread_num() * scratch, *entered = mine + narrow;
        for (int64_t k = 0; k < num_parts; k++)
            hg_pack_weights(&parts[k].weights, parts[k].a->weight, parts[k].a->weight_down, parts[k].a->weight_across);
        #pragma omp for schedule(dynamic, turn)
        for (int64_t first = 0; first < a->rows; first += HG_ROWS) {
            const int64_t num = hg_least(a->rows - first, HG_ROWS), y_stride = narrow ? a->width : a->y_stride;
            char *to = (char *)a->y + first * a->y_stride * hg_size_of(a->y_type);
            float *y = narrow ? mine : (float *)to;
            for (int64_t k = 0; k < num_parts; k++) {
                const hg_projection_args *of = parts[k].a;
                const hg_ahead next = hg_next_block(of->x, of->x_type, of->x_stride, of->depth, first, a->rows);
                const int as_it_is = !of->elu && !of->ids && of->x_type == HG_F32;
                if (!as_it_is)
                    enter(&parts[k], entered, first, num, 0, of->depth);
                hg_multiply_block(&parts[k].weights, y, y_stride,
                                  as_it_is ? (const float *)of->x + first * of->x_stride : entered,
                                  as_it_is ? of->x_stride : parts[k].stride, a->y_sums && !k ? packed + bias : NULL, num,
                                  k || a->add, &next);
            }
            for (int64_t i = 0; narrow && i < num; i++)
                parts->table->copy_row[HG_F32][a->y_type](to + i * a->y_stride * 2, y + i * y_stride, a->width, 1);
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
        hg_mask_rows(&p->mask, HG_F32, scratch->gradient, p->stride, a->ids + first, NULL, num, 0, a->depth);
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

/* Rows and columns of the weights, whose gradients are made together. */
typedef struct {
    int64_t row, row_end, column, column_end;
} hg_part;

/* The part of a share's sums that comes of a block of rows. Leaves what rows are multiplied as in `scratch`. */
static void block_weights(const hg_projection *p, const hg_scratch *scratch, const hg_sums *sums, int64_t first, int64_t end,
                          hg_part part)
{
    const hg_projection_args *a = p->a;
    const int64_t num = hg_least(a->rows - first, HG_ROWS), depth = part.row_end - part.row;
    const hg_product_kernels *products = &p->table->products;
    const int64_t width = part.column_end - part.column, turns = (width + products->columns - 1) / products->columns;
    const int64_t x_size = hg_size_of(a->x_type), y_size = hg_size_of(a->y_type);
    const hg_ahead next_x = hg_next_block((const char *)a->x + part.row * x_size, a->x_type, a->x_stride, depth, first, end);
    const hg_ahead next_y =
        hg_next_block((const char *)a->y + part.column * y_size, a->y_type, a->y_stride, width, first, end);
    int64_t y_stride = a->y_stride;
    const char *block = (const char *)a->y + (first * y_stride + part.column) * y_size;
    const float *gradient = hg_widened(&p->weights, scratch->wide, block, a->y_type, &y_stride, num, width);
    if (a->y_sums && part.row == 0)
        p->between->bias_gradient(sums->y_columns + part.column, gradient, y_stride, num, width);
    enter(p, scratch->entered, first, num, part.row, part.row_end);
    for (int64_t c = 0; c < width; c += products->columns) {
        /* Rows of a panel that share few sets of the first-level cache would push each other out of it: they are copied. */
        const int64_t some = hg_least(width - c, products->columns), in_place = some % HG_PANEL == 0 && y_stride % 128 != 0;
        for (int64_t k = 0; !in_place && k < some; k += HG_PANEL)
            hg_pack_panel(scratch->panels + k * HG_ROWS, gradient + c + k, y_stride, 1, num, hg_least(some - k, HG_PANEL));
        hg_ask_for(&next_x, c / products->columns, turns);
        hg_ask_for(&next_y, c / products->columns, turns);
        products->multiply_transposed(sums->weight + (part.column + c) * a->depth + part.row * HG_PANEL, a->depth * HG_PANEL,
                                      scratch->entered, p->stride, in_place ? gradient + c : scratch->panels,
                                      in_place ? HG_PANEL : HG_PANEL * HG_ROWS, in_place ? y_stride : HG_PANEL, num, depth,
                                      some);
    }
}

/* The block's rows of gx, and its part of the columns' sums. Behind ELU, `scratch` has the rows as they are multiplied. */
static void block_gradient(const hg_projection *p, const hg_scratch *scratch, float *columns, int64_t first)
{
    const hg_projection_args *a = p->a;
    const hg_ahead none = {0};
    const int64_t num = hg_least(a->rows - first, HG_ROWS);
    int64_t stride = a->y_stride;
    const char *block = (const char *)a->y + first * stride * hg_size_of(a->y_type);
    const float *right = hg_widened(&p->weights, scratch->wide, block, a->y_type, &stride, num, a->width);
    if (a->elu) {
        hg_multiply_block(&p->weights, scratch->gradient, p->stride, right, stride, NULL, num, 0, &none);
        leave(p, scratch, columns, first, num);
    } else {
        hg_multiply_block(&p->weights, a->gx + first * a->gx_stride, a->gx_stride, right, stride, NULL, num, a->add, &none);
    }
}

static hg_sums sums_of(const hg_projection_args *a, float *at)
{
    float *columns = at + hg_panels_of(a->width) * HG_PANEL * a->depth;
    return (hg_sums){at, columns, columns + a->depth};
}

/* Clears a part of a share's sums, and those of the columns that go with it. */
static void clear_sums(const hg_projection_args *a, const hg_sums *sums, hg_part part)
{
    const size_t size = sizeof *sums->weight;
    for (int64_t c = part.column; c < part.column_end; c += HG_PANEL)
        memset(sums->weight + c * a->depth + part.row * HG_PANEL, 0, (size_t)(part.row_end - part.row) * HG_PANEL * size);
    if (part.row == 0)
        memset(sums->y_columns + part.column, 0, (size_t)(part.column_end - part.column) * size);
    if (part.column == 0)
        memset(sums->columns + part.row, 0, (size_t)(part.row_end - part.row) * size);
}

/* Parts that keep all threads busy, the fewest and squarest: each reads its columns of x and of y once more. Equal tasks are enough
 * where they fill 17 of 20 parts of the threads' time. */
static hg_cut cut_of(const hg_projection_args *a, int64_t shares, int64_t threads)
{
    const int64_t most_down = (a->depth + HG_PART - 1) / HG_PART, most_across = hg_panels_of(a->width);
    hg_cut cut = {1, 1};
    for (int64_t n = shares; n < HG_ENOUGH_TASKS * threads && 20 * n < 17 * ((n + threads - 1) / threads * threads);
         n = shares * cut.down * cut.across) {
        const int longer = a->depth * cut.across >= a->width * cut.down;
        if (cut.down * 2 <= most_down && (longer || cut.across * 2 > most_across))
            cut.down *= 2;
        else if (cut.across * 2 <= most_across)
            cut.across *= 2;
        else
            break;
    }
    return cut;
}

/* Bounds of a part: rows of whole HG_PARTs, whole panels of columns. */
static hg_part part_of(const hg_projection_args *a, hg_cut cut, int64_t number)
{
    const int64_t downs = (a->depth + HG_PART - 1) / HG_PART, panels = hg_panels_of(a->width);
    const int64_t i = number / cut.across, k = number % cut.across;
    return (hg_part){i * downs / cut.down * HG_PART, hg_least((i + 1) * downs / cut.down * HG_PART, a->depth),
                     k * panels / cut.across * HG_PANEL, hg_least((k + 1) * panels / cut.across * HG_PANEL, a->width)};
}

/* Adds a share's sums of a panel's columns, in HG_PART rows from row `k` on, and those of columns that go with them. */
static void add_sums(const hg_projection_args *a, const hg_sums *sums, int64_t column, int64_t row)
{
    const int64_t end = hg_least(row + HG_PART, a->depth), end_column = hg_least(column + HG_PANEL, a->width);
    const float *from = sums->weight + column * a->depth - column;
    for (int64_t k = row; k < end; k++)
        for (int64_t c = column; c < end_column; c++)
            a->g_weight[k * a->width + c] += from[k * HG_PANEL + c];
    for (int64_t k = row; a->sums && column == 0 && k < end; k++)
        a->sums[k] += sums->columns[k];
    for (int64_t c = column; a->y_sums && row == 0 && c < end_column; c++)
        a->y_sums[c] += sums->y_columns[c];
}

/* The same backwards: how rows are shared out, and the memory for it. */
static hg_projection backwards_of(int path, int num_threads, const hg_projection_args *a)
{
    hg_projection p = projection_of(path, a);
    p.blocks = (a->rows + HG_ROWS - 1) / HG_ROWS;
    p.shares = hg_least((a->rows + HG_SHARE_ROWS - 1) / HG_SHARE_ROWS, HG_SHARES);
    p.scratch = scratch_size(&p);
    p.sums_size = (hg_panels_of(a->width) * HG_PANEL + 1) * a->depth + a->width;
    const int64_t fitting = HG_SUMS_BYTES / (p.sums_size * (int64_t)sizeof(float));
    p.most = num_threads == 1 || fitting < 1 ? 1 : hg_least(fitting, p.shares);
    const int64_t waves = (p.shares + p.most - 1) / p.most;
    p.held = (p.shares + waves - 1) / waves;
    p.cut = cut_of(a, p.held, num_threads);
    if (p.cut.down * p.cut.across > 1 && a->gx && a->sums)
        p.apart = (p.held * p.blocks / p.shares + 2) * a->depth;
    return p;
}

int64_t hg_memory_backward(int path, int num_threads, const hg_projection_args *a)
{
    const hg_projection p = backwards_of(path, num_threads, a);
    return p.most * p.sums_size + num_threads * p.scratch + p.apart;
}

void hg_project_rows_backward(int path, int num_threads, const hg_projection_args *a, const hg_weights *weights, float *memory)
{
    hg_projection p = backwards_of(path, num_threads, a);
    const int64_t blocks = p.blocks, shares = p.shares, parts = p.cut.down * p.cut.across, one_pass = parts == 1;
    float *scratches = memory + p.most * p.sums_size, *columns = scratches + num_threads * p.scratch;
    const hg_scratch mine = scratch_of(&p, scratches + omp_get_thread_num() * p.scratch);
    p.weights = *weights;
    for (int64_t wave = 0; wave < shares; wave += p.held) {
        const int64_t last = hg_least(wave + p.held, shares);
        const int64_t first_block = wave * blocks / shares, end_block = last * blocks / shares;
        #pragma omp barrier
        #pragma omp for schedule(dynamic, 1) nowait
        for (int64_t t = 0; t < (last - wave) * parts; t++) {
            const int64_t s = wave + t / parts, end = (s + 1) * blocks / shares;
            const hg_sums sums = sums_of(a, memory + (s - wave) * p.sums_size);
            const hg_part part = part_of(a, p.cut, t % parts);
            clear_sums(a, &sums, part);
            for (int64_t b = s * blocks / shares; b < end; b++) {
                block_weights(&p, &mine, &sums, b * HG_ROWS, hg_least(end * HG_ROWS, a->rows), part);
                if (one_pass && a->gx)
                    block_gradient(&p, &mine, sums.columns, b * HG_ROWS);
            }
        }
        if (!one_pass && (const void *)a->gx == a->x) {
            #pragma omp barrier         /* tasks read rows of x that blocks write to */
        }
        if (!one_pass && a->gx) {
            #pragma omp for schedule(dynamic, 1) nowait
            for (int64_t b = first_block; b < end_block; b++) {
                float *of_block = columns + (b - first_block) * a->depth;
                if (a->elu)
                    enter(&p, mine.entered, b * HG_ROWS, hg_least(a->rows - b * HG_ROWS, HG_ROWS), 0, a->depth);
                if (p.apart)
                    memset(of_block, 0, (size_t)a->depth * sizeof *of_block);
                block_gradient(&p, &mine, of_block, b * HG_ROWS);
            }
        }
        #pragma omp barrier
        #pragma omp for schedule(static) collapse(2) nowait
        for (int64_t column = 0; column < a->width; column += HG_PANEL)
            for (int64_t row = 0; row < a->depth; row += HG_PART)
                for (int64_t s = wave; s < last; s++) {
                    const hg_sums sums = sums_of(a, memory + (s - wave) * p.sums_size);
                    const int64_t end = p.apart && column == 0 ? (s + 1) * blocks / shares : 0;
                    for (int64_t b = s * blocks / shares; b < end; b++)
                        for (int64_t k = row; k < hg_least(row + HG_PART, a->depth); k++)
                            sums.columns[k] += columns[(b - first_block) * a->depth + k];
                    add_sums(a, &sums, column, row);
                }
    }
}

/* All gradients from that of y. Returns 0, or -1: no memory. */
HG_EXPORT int hg_project_backward(int path, int num_threads, const hg_projection_args *a)
{
    static _Thread_local hg_memory kept;
    num_threads = a->rows * a->depth * a->width < HG_FEW_PRODUCTS ? 1 : num_threads;
    const int64_t width = a->gx ? a->depth : 0, size = hg_panels_size(a->width, width);
    float *packed = hg_kept(&kept, (size + hg_memory_backward(path, num_threads, a)) * (int64_t)sizeof *packed);
    const hg_weights weights = {packed, a->width, width, &hg_table(path)->products};
    if (!packed)
        return -1;
    #pragma omp parallel num_threads(num_threads)
    {
        hg_pack_weights(&weights, a->weight, a->weight_across, a->weight_down);
        hg_project_rows_backward(path, num_threads, a, &weights, packed + size);
    }
    return 0;
}
