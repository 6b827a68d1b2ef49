/* Template: rows that fit into registers, up to HG_MAX_UNITS units of gather_unit.h, and bfloat16 rows of up to twice
 * that.
 *
 * All units but the last follow each other; the last ends with the row and may overlap its neighbour. Overlapping
 * columns are summed twice, equally, and stored twice: so every width of at least a unit is handled without masks or
 * scalar tails. What is added to (with accumulate) is loaded before anything is stored.
 *
 * bfloat16 rows that need up to twice the registers are summed half by half, the second half while the lines fetched
 * for the first are in cache. For them that beats gather_wide.h; for float32 it does not. AVX-512 has 32 registers and is
 * faster without halves.
 */
#if HG_KIND == HG_PAIR
#define HG_MAX_UNITS (HG_LANES != HG_F32_LANES ? 2 : HG_VECTOR_BYTES == 64 ? 8 : 4)
#else
#define HG_MAX_UNITS (HG_LANES * sizeof(HG_A) == HG_VECTOR_BYTES ? 8 : 2)
#endif

/* First column of unit k of num_units. */
#define HG_UNIT_AT(k) ((k) < num_units - 1 ? column + (k) * HG_COLUMNS : last_column)

/* sums = those of edges [first, last), columns from `column` on, the last unit at `last_column`. `fetched` units of
 * each row to come are prefetched, whatever its bytes are summed by. */
HG_INLINE void HG_TAGGED(sum)(HG_TAGGED(vec) *sums, const hg_gather_args *a, int64_t first, int64_t last, int64_t readable,
                              int64_t column, int64_t last_column, const int num_units, const int scaled, const int fetched)
{
    const HG_X *x = (const HG_X *)a->x;
    const int32_t *indices = a->indices;
    const HG_A *weight = (const HG_A *)a->weight, *source_scale = (const HG_A *)a->source_scale;
    const int64_t stride = a->x_stride;

    HG_UNROLL
    for (int k = 0; k < num_units * HG_VECTORS; k++)
        sums[k] = (HG_TAGGED(vec)){0};
    for (int64_t e = first; e < last; e++) {
        if (fetched && e + HG_NARROW_AHEAD < readable) {
            const int64_t j = indices[e + HG_NARROW_AHEAD];
            const char *ahead = (const char *)(x + j * stride);
            HG_UNROLL
            for (int b = 0; b < fetched * HG_COLUMNS * (int)sizeof(HG_X); b += 64)
                __builtin_prefetch(ahead + b);
            /* A row that does not start on a cache line reaches into one more. */
            __builtin_prefetch(ahead + a->width * (int64_t)sizeof(HG_X) - 1);
            if (scaled && source_scale)
                __builtin_prefetch(source_scale + j);
        }
        const int64_t j = indices[e];
        const HG_X *row = x + j * stride;
        HG_A coefficient = 1;
        if (scaled && weight)
            coefficient = weight[e];
        if (scaled && source_scale)
            coefficient *= source_scale[j];
        HG_UNROLL
        for (int k = 0; k < num_units - 1; k++)
            HG_TAGGED(add)(sums + k * HG_VECTORS, row + HG_UNIT_AT(k), coefficient, scaled);
        HG_TAGGED(add)(sums + (num_units - 1) * HG_VECTORS, row + last_column, coefficient, scaled);
    }
}

HG_INLINE void HG_TAGGED(narrow_rows)(const hg_gather_args *a, int64_t first, int64_t last, int64_t column,
                                      int64_t last_column, const int num_units, const int scaled, const int fetched)
{
    const int64_t readable = a->indptr[a->num_rows];
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = a->indptr[i], end = a->indptr[i + 1];
        const int64_t r = a->rows ? a->rows[i] : i;
        HG_TAGGED(vec) sums[HG_MAX_UNITS * HG_VECTORS];
        if (end - begin > HG_HUB_EDGES || (begin == end && a->accumulate))
            continue;
        HG_TAGGED(sum)(sums, a, begin, end, readable, column, last_column, num_units, scaled, fetched);
        if (a->row_scale) {
            const HG_A factor = ((const HG_A *)a->row_scale)[r];
            HG_UNROLL
            for (int k = 0; k < num_units; k++)
                HG_TAGGED(scale)(sums + k * HG_VECTORS, factor);
        }
#if HG_KIND == HG_PAIR || HG_KIND == HG_SINGLE
        if (a->y_type == HG_BF16) {
            uint16_t *y = (uint16_t *)a->y + r * a->y_stride;
            if (a->accumulate) {
                HG_UNROLL
                for (int k = 0; k < num_units; k++)
                    HG_TAGGED(add)(sums + k * HG_VECTORS, y + HG_UNIT_AT(k), 1, 0);
            }
            HG_UNROLL
            for (int k = 0; k < num_units; k++)
                HG_TAGGED(store_bf16)(y + HG_UNIT_AT(k), sums + k * HG_VECTORS);
            continue;
        }
#endif
        HG_A *y = (HG_A *)a->y + r * a->y_stride;
        if (a->accumulate) {
            HG_UNROLL
            for (int k = 0; k < num_units; k++)
                HG_TAGGED(add_result)(sums + k * HG_VECTORS, y + HG_UNIT_AT(k));
        }
        HG_UNROLL
        for (int k = 0; k < num_units; k++)
            HG_TAGGED(store_result)(y + HG_UNIT_AT(k), sums + k * HG_VECTORS);
    }
}

HG_INLINE void HG_TAGGED(narrow_chunk)(const hg_gather_args *a, int64_t first, int64_t last, HG_A *partial, int64_t column,
                                       int64_t last_column, const int num_units, const int scaled)
{
    HG_TAGGED(vec) sums[HG_MAX_UNITS * HG_VECTORS];
    HG_TAGGED(sum)(sums, a, first, last, last, column, last_column, num_units, scaled, num_units);
    HG_UNROLL
    for (int k = 0; k < num_units; k++)
        HG_TAGGED(store_result)(partial + HG_UNIT_AT(k), sums + k * HG_VECTORS);
}

/* One copy of the code per number of units and with or without coefficients, so that the sums are registers. */
#define HG_CASE(n, call) case n: if (scaled) call(HG_AT_MOST(n), 1); else call(HG_AT_MOST(n), 0); break;
#define HG_AT_MOST(n) ((n) < 2 * HG_MAX_UNITS ? (n) : 2 * HG_MAX_UNITS)
#define HG_CASES(call)                                                                                                 \
    const int scaled = a->weight || a->source_scale;                                                                   \
    switch ((a->width + HG_COLUMNS - 1) / HG_COLUMNS) {                                                                \
    HG_CASE(1, call) HG_CASE(2, call) HG_WIDER_CASES(call)                                                             \
    }
#if HG_IS_FULL
#define HG_WIDER_CASES(call)                                                                                           \
    HG_CASE(3, call) HG_CASE(4, call) HG_CASE(5, call) HG_CASE(6, call) HG_CASE(7, call) HG_CASE(8, call)
#else
#define HG_WIDER_CASES(call)
#endif

static __attribute__((noinline)) void HG_TAGGED(rows)(const hg_gather_args *a, int64_t first, int64_t last)
{
#define HG_LAST_UNIT (a->width - HG_COLUMNS)
#define HG_OF_WIDTH(n, s)                                                                                              \
    do {                                                                                                               \
        if ((n) <= HG_MAX_UNITS)                                                                                       \
            HG_TAGGED(narrow_rows)(a, first, last, 0, HG_LAST_UNIT, (n) <= HG_MAX_UNITS ? (n) : 1, s, n);              \
        else                                                                                                           \
            for (int64_t i = first; i < last; i++) {                                                                   \
                HG_TAGGED(narrow_rows)(a, i, i + 1, 0, ((n) / 2 - 1) * HG_COLUMNS, (n) / 2, s, n);                     \
                HG_TAGGED(narrow_rows)(a, i, i + 1, (n) / 2 * HG_COLUMNS, HG_LAST_UNIT, (n) - (n) / 2, s, 0);          \
            }                                                                                                          \
    } while (0)
    HG_CASES(HG_OF_WIDTH)
#undef HG_OF_WIDTH
}

static __attribute__((noinline)) void HG_TAGGED(chunk)(const hg_gather_args *a, int64_t first, int64_t last, void *partial)
{
#define HG_OF_WIDTH(n, s)                                                                                              \
    do {                                                                                                               \
        if ((n) <= HG_MAX_UNITS) {                                                                                     \
            HG_TAGGED(narrow_chunk)(a, first, last, (HG_A *)partial, 0, HG_LAST_UNIT, (n) <= HG_MAX_UNITS ? (n) : 1, s); \
        } else {                                                                                                       \
            HG_TAGGED(narrow_chunk)(a, first, last, (HG_A *)partial, 0, ((n) / 2 - 1) * HG_COLUMNS, (n) / 2, s);       \
            HG_TAGGED(narrow_chunk)(a, first, last, (HG_A *)partial, (n) / 2 * HG_COLUMNS, HG_LAST_UNIT, (n) - (n) / 2, s); \
        }                                                                                                              \
    } while (0)
    HG_CASES(HG_OF_WIDTH)
#undef HG_OF_WIDTH
}

#undef HG_CASE
#undef HG_CASES
#undef HG_AT_MOST
#undef HG_WIDER_CASES
#undef HG_UNIT_AT
#undef HG_LAST_UNIT
#undef HG_MAX_UNITS
