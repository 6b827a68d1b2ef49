/* Template: messages of edges that are made of the source's row and of the edge's features, and their reduction by row.
 *
 *   m_e = z_j + e_e W + b, where W and b are there, and then ReLU if asked for
 *
 * Plain loops over columns that the compiler turns into vectors. A message is made in one function, so that it has the same
 * bits whenever it is made again: the largest is looked for among them.
 */
static __attribute__((noinline)) const HG_E *HG_T(message)(const hg_message_args *a, int64_t e, int64_t ahead, HG_E *out)
{
    const int64_t width = a->width, depth = a->weight ? a->depth : 0;
    const HG_E *restrict x = (const HG_E *)a->x + a->indices[e] * a->x_stride;
    if (ahead >= 0)
        hg_prefetch_row((const HG_E *)a->x + a->indices[ahead] * a->x_stride, hg_least(width * (int64_t)sizeof(HG_E), 512));
    if (!depth && !a->bias && !a->relu)
        return x;
    if (a->bias) {
        const HG_E *restrict bias = (const HG_E *)a->bias;
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] = x[c] + bias[c];
    } else {
        memcpy(out, x, (size_t)width * sizeof(HG_E));
    }
    if (depth) {
        const int64_t place = hg_place(a->places, a->place_bytes, e);
        const HG_E *restrict of = (const HG_E *)a->edge + place * a->edge_stride, *restrict w = (const HG_E *)a->weight;
        int64_t k = 0;
        if (ahead >= 0)
            hg_prefetch_row((const HG_E *)a->edge + hg_place(a->places, a->place_bytes, ahead) * a->edge_stride, depth * (int64_t)sizeof(HG_E));
        for (; k + 4 <= depth; k += 4, w += 4 * width) {
            const HG_E f0 = of[k], f1 = of[k + 1], f2 = of[k + 2], f3 = of[k + 3];
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                out[c] += f0 * w[c] + f1 * w[width + c] + (f2 * w[2 * width + c] + f3 * w[3 * width + c]);
        }
        for (; k < depth; k++, w += width) {
            const HG_E f = of[k];
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                out[c] += f * w[c];
        }
    }
    if (a->relu) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] = out[c] > 0 || out[c] != out[c] ? out[c] : 0;       /* NaN stays, and is seen in the loss */
    }
    return out;
}

/* Takes the edges [first, last) into a row: y (F), or y (4 F) of moments with counts (2 F), `number` edges being in them. */
static void HG_T(message_take)(const hg_message_args *a, HG_E *memory, int64_t first, int64_t last, HG_E *y, HG_E *counts,
                               int64_t number)
{
    const int64_t width = a->width, readable = a->indptr[a->num_rows];
    for (int64_t e = first; e < last; e++) {
        const HG_E *restrict m = HG_T(message)(a, e, e + 4 < readable ? e + 4 : -1, memory);
        HG_E *restrict mean = y;
        if (a->reduce == HG_REDUCE_SUM) {
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                mean[c] += m[c];
            continue;
        }
        HG_E *restrict top = y + width, *restrict low = top + width, *restrict squares = low + width;
        HG_E *restrict tops = counts, *restrict lows = counts + width;
        const HG_E share = 1 / (HG_E)++number;
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++) {
            const HG_E value = m[c], apart = value - mean[c], next = mean[c] + apart * share;
            squares[c] += apart * (value - next);
            mean[c] = next;
        }
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++) {
            const HG_E value = m[c], held = top[c];
            const int above = (value > held) | (value != value);
            tops[c] = above ? 1 : tops[c] + (value == held ? 1 : 0);
            top[c] = above ? value : held;
        }
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++) {
            const HG_E value = m[c], held = low[c];
            const int below = (value < held) | (value != value);
            lows[c] = below ? 1 : lows[c] + (value == held ? 1 : 0);
            low[c] = below ? value : held;
        }
    }
}

/* Rows [first, last) of the block, hubs left out. */
static void HG_T(message_rows)(const hg_message_args *a, void *memory, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const int64_t r = a->rows ? a->rows[i] : i, num = a->indptr[i + 1] - a->indptr[i];
        if (num == 0 || num > HG_HUB_EDGES)
            continue;
        HG_T(message_take)(a, memory, a->indptr[i], a->indptr[i + 1], (HG_E *)a->y + r * a->y_stride,
                           a->counts ? (HG_E *)a->counts + r * a->counts_stride : NULL, a->numbers ? a->numbers[r] : 0);
        if (a->numbers)
            a->numbers[r] += num;
    }
}

/* Edges [first, last) of a hub, into partial: y, counts and their number. */
static void HG_T(message_chunk)(const hg_message_args *a, void *memory, int64_t first, int64_t last, void *partial)
{
    HG_E *y = partial;
    const int64_t width = a->width;
    if (a->reduce == HG_REDUCE_SUM) {
        memset(y, 0, (size_t)width * sizeof(HG_E));
    } else {
        memset(y, 0, (size_t)(6 * width) * sizeof(HG_E));
        for (int64_t c = 0; c < width; c++)
            y[width + c] = -(HG_E)__builtin_inf(), y[2 * width + c] = (HG_E)__builtin_inf();
        y[6 * width] = (HG_E)(last - first);
    }
    HG_T(message_take)(a, memory, first, last, y, y + 4 * width, 0);
}

/* Adds num partials to row i, in order. Squared distances are merged as by Chan et al., 1979. */
static void HG_T(message_merge)(const hg_message_args *a, int64_t i, const void *partial, int64_t num)
{
    const int64_t r = a->rows ? a->rows[i] : i, width = a->width;
    HG_E *restrict y = (HG_E *)a->y + r * a->y_stride;
    if (a->reduce == HG_REDUCE_SUM) {
        const HG_E *restrict more = partial;
        for (int64_t k = 0; k < num; k++, more += width)
            for (int64_t c = 0; c < width; c++)
                y[c] += more[c];
        return;
    }
    const HG_E *restrict more = partial;
    HG_E *restrict tops = (HG_E *)a->counts + r * a->counts_stride, *restrict lows = tops + width;
    for (int64_t k = 0; k < num; k++, more += 6 * width + 1) {
        const HG_E before = (HG_E)a->numbers[r], new = more[6 * width], share = new / (before + new);
        for (int64_t c = 0; c < width; c++) {
            const HG_E apart = more[c] - y[c];
            y[c] += apart * share;
            y[3 * width + c] += more[3 * width + c] + apart * apart * (before * share);
            for (int side = 1; side < 3; side++) {
                const HG_E value = more[side * width + c], held = y[side * width + c], count = more[(3 + side) * width + c];
                const int beyond = (side == 1 ? value > held : value < held) | (value != value);
                HG_E *counts = side == 1 ? tops : lows;
                counts[c] = beyond ? count : counts[c] + (value == held ? count : 0);
                y[side * width + c] = beyond ? value : held;
            }
        }
        a->numbers[r] += (int64_t)new;
    }
}

/* The gradient of a message of own row r, in `out`. gradient (F), or (4 F) of moments: see kernels/row_rules.py. */
static void HG_T(message_gradient)(const hg_message_args *a, int64_t r, const HG_E *restrict m, HG_E *restrict out)
{
    const int64_t width = a->width;
    const HG_E *restrict g = (const HG_E *)a->gradient + r * a->gradient_stride, *restrict y = (const HG_E *)a->y + r * a->y_stride;
    if (a->reduce == HG_REDUCE_SUM) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] = g[c];
    } else {
        const HG_E *restrict of_top = g + width, *restrict of_low = of_top + width, *restrict of_apart = of_low + width;
        const HG_E *restrict top = y + width, *restrict low = top + width;
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++) {
            const HG_E value = m[c];
            out[c] = g[c] + (value - y[c]) * of_apart[c] + (value == top[c] ? of_top[c] : 0) +
                     (value == low[c] ? of_low[c] : 0);
        }
    }
    if (a->relu) {
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            out[c] = m[c] > 0 ? out[c] : 0;
    }
}

/* What one edge of own row r gives: to the row that it returns to, and to `of_map` (depth + 1, F),
 * whose rows are `stride` apart, unless NULL. */
HG_INLINE void HG_T(message_back)(const hg_message_args *a, HG_E *memory, HG_E *gradient, int64_t r, int64_t e,
                                  int64_t ahead, int returns, HG_E *of_map, int64_t stride)
{
    const int64_t width = a->width;
    HG_T(message_gradient)(a, r, HG_T(message)(a, e, ahead, memory), gradient);
    if (returns) {
        HG_E *restrict to = (HG_E *)a->back + (a->returns ? a->returns : a->indices)[e] * a->back_stride;
        const HG_E *restrict from = gradient;
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            to[c] += from[c];
    }
    if (of_map) {
        const HG_E *restrict of = a->weight ? (const HG_E *)a->edge + hg_place(a->places, a->place_bytes, e) * a->edge_stride : NULL;
        const HG_E *restrict from = gradient;
        HG_E *restrict to = of_map;
        for (int64_t k = 0; k < a->depth; k++, to += stride) {
            const HG_E f = of[k];
            HG_INDEPENDENT
            for (int64_t c = 0; c < width; c++)
                to[c] += f * from[c];
        }
        HG_INDEPENDENT
        for (int64_t c = 0; c < width; c++)
            to[c] += from[c];
    }
}

/* The edges [first, last) of rows [row, last_row): their own rows go to rows[e - first], or they return at once if that is
 * NULL; what they give to the map is added to of_map unless NULL. */
static void HG_T(message_task)(const hg_message_args *a, void *memory, void *gradient, int64_t row, int64_t last_row,
                               int64_t first, int64_t last, int32_t *rows, void *of_map, int64_t stride)
{
    const int64_t readable = a->indptr[a->num_rows];
    for (int64_t i = row; i < last_row; i++) {
        const int64_t r = a->rows ? a->rows[i] : i, end = hg_least(a->indptr[i + 1], last);
        for (int64_t e = a->indptr[i] > first ? a->indptr[i] : first; e < end; e++) {
            if (rows)
                rows[e - first] = (int32_t)r;
            if (of_map || !rows)
                HG_T(message_back)(a, memory, gradient, r, e, e + 4 < readable ? e + 4 : -1, !rows && a->back, of_map,
                                   stride);
        }
    }
}

/* Adds what the listed ones of the edges from `first` on return. rows: own rows of these edges. */
static void HG_T(message_return)(const hg_message_args *a, void *memory, void *gradient, const int32_t *rows, int64_t first,
                                 const int32_t *order, int64_t num)
{
    for (int64_t k = 0; k < num; k++)
        HG_T(message_back)(a, memory, gradient, rows[order[k]], first + order[k],
                           k + 4 < num ? first + order[k + 4] : -1, 1, NULL, 0);
}
