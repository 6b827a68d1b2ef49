/* Template: sums of rows over a panel of columns, for one element type and one vector length.
 *
 * Included with: HG_TAG (suffix of the names), HG_X (stored element), HG_A (accumulation element), HG_LANES,
 * HG_MAX_VECTORS (vectors in the widest panel), HG_IS_BF16 (0 or 1). Undefines them at the end.
 *
 * A panel is num_vectors vectors of columns, of which all but the last follow each other from `column`; the last starts
 * at `last_column`, so that it ends with the row and may overlap its neighbour. Overlapping lanes compute the same sum
 * twice and store it twice. That handles every width >= HG_LANES without masks or scalar tails; what is added to (with
 * accumulate) is loaded before anything is stored.
 */
#define HG_N(name) HG_JOIN(name##_, HG_TAG)
#define HG_MIN(a, b) ((int64_t)(a) < (int64_t)(b) ? (int64_t)(a) : (int64_t)(b))
#define HG_MAX(a, b) ((int64_t)(a) > (int64_t)(b) ? (int64_t)(a) : (int64_t)(b))

#if HG_LANES == 1
typedef HG_A HG_N(vec);
typedef HG_A HG_N(loose);
typedef HG_X HG_N(store);
#else
typedef HG_A HG_N(vec) __attribute__((vector_size(HG_LANES * sizeof(HG_A))));
typedef HG_A HG_N(loose) __attribute__((vector_size(HG_LANES * sizeof(HG_A)), aligned(sizeof(HG_A)), may_alias));
typedef HG_X HG_N(store) __attribute__((vector_size(HG_LANES * sizeof(HG_X)), aligned(sizeof(HG_X)), may_alias));
#if HG_IS_BF16
typedef uint32_t HG_N(bits) __attribute__((vector_size(HG_LANES * 4)));
typedef uint16_t HG_N(half) __attribute__((vector_size(HG_LANES * 2)));
#endif
#endif

HG_INLINE HG_N(vec) HG_N(load)(const HG_X *p)
{
#if !HG_IS_BF16
    return *(const HG_N(loose) *)p;
#elif HG_LANES == 1
    return hg_float_of_bf16(*p);
#else
    HG_N(half) h = *(const HG_N(store) *)p;
    return (HG_N(vec))(__builtin_convertvector(h, HG_N(bits)) << 16);
#endif
}

#if HG_IS_BF16
HG_INLINE void HG_N(store_bf16)(uint16_t *p, HG_N(vec) v)
{
#if HG_LANES == 1
    *p = hg_bf16_of_float(v);
#else
    HG_N(bits) bits = (HG_N(bits))v;
    HG_N(bits) rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    HG_N(bits) is_nan = (HG_N(bits))(v != v);
    *(HG_N(store) *)p = __builtin_convertvector((rounded & ~is_nan) | (is_nan & 0x7fc0u), HG_N(half));
#endif
}
#endif

HG_INLINE void HG_N(sum)(HG_N(vec) *acc, const hg_gather_args *a, int64_t first, int64_t last, int64_t readable,
                         int64_t column, int64_t last_column, const int num_vectors, const int scaled)
{
    const HG_X *x = (const HG_X *)a->x;
    const int32_t *indices = a->indices;
    const HG_A *weight = (const HG_A *)a->weight, *source_scale = (const HG_A *)a->source_scale;
    const int64_t stride = a->x_stride;
    const int64_t bytes = (last_column + HG_LANES - column) * (int64_t)sizeof(HG_X);

    HG_UNROLL
    for (int k = 0; k < num_vectors; k++)
        acc[k] = (HG_N(vec)){0};
    for (int64_t e = first; e < last; e++) {
        if (e + HG_PREFETCH_EDGES < readable) {
            int64_t ahead = indices[e + HG_PREFETCH_EDGES];
            const char *p = (const char *)(x + ahead * stride + column);
            HG_UNROLL
            for (int k = 0; k < (num_vectors * HG_LANES * (int)sizeof(HG_X) + 63) / 64; k++)
                __builtin_prefetch(p + 64 * k);
            __builtin_prefetch(p + bytes - 1);      /* rows that do not start on a line reach into one more */
            if (scaled && source_scale)
                __builtin_prefetch(source_scale + ahead);
        }
        int64_t j = indices[e];
        const HG_X *row = x + j * stride;
        if (scaled) {
            HG_A coefficient = weight ? weight[e] : (HG_A)1;
            if (source_scale)
                coefficient *= source_scale[j];
            HG_UNROLL
            for (int k = 0; k < num_vectors - 1; k++)
                acc[k] += coefficient * HG_N(load)(row + column + k * HG_LANES);
            acc[num_vectors - 1] += coefficient * HG_N(load)(row + last_column);
        } else {
            HG_UNROLL
            for (int k = 0; k < num_vectors - 1; k++)
                acc[k] += HG_N(load)(row + column + k * HG_LANES);
            acc[num_vectors - 1] += HG_N(load)(row + last_column);
        }
    }
}

HG_INLINE void HG_N(panel)(const hg_gather_args *a, int64_t first, int64_t last, int64_t column, int64_t last_column,
                           const int num_vectors, const int scaled)
{
    const HG_A *row_scale = (const HG_A *)a->row_scale;
    const int64_t readable = a->indptr[a->num_rows];
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = a->indptr[i], end = a->indptr[i + 1];
        const int64_t r = a->rows ? a->rows[i] : i;
        HG_N(vec) acc[HG_MAX_VECTORS];
        if (end - begin > HG_HUB_EDGES || (begin == end && a->accumulate))
            continue;
        HG_N(sum)(acc, a, begin, end, readable, column, last_column, num_vectors, scaled);
        if (row_scale) {
            HG_UNROLL
            for (int k = 0; k < num_vectors; k++)
                acc[k] *= row_scale[r];
        }
#if HG_IS_BF16
        if (a->y_type == HG_BF16) {
            uint16_t *y = (uint16_t *)a->y + r * a->y_stride;
            if (a->accumulate) {
                HG_UNROLL
                for (int k = 0; k < num_vectors; k++)
                    acc[k] += HG_N(load)(y + (k < num_vectors - 1 ? column + k * HG_LANES : last_column));
            }
            HG_UNROLL
            for (int k = 0; k < num_vectors; k++)
                HG_N(store_bf16)(y + (k < num_vectors - 1 ? column + k * HG_LANES : last_column), acc[k]);
            continue;
        }
#endif
        HG_A *y = (HG_A *)a->y + r * a->y_stride;
        if (a->accumulate) {
            HG_UNROLL
            for (int k = 0; k < num_vectors; k++)
                acc[k] += *(HG_N(loose) *)(y + (k < num_vectors - 1 ? column + k * HG_LANES : last_column));
        }
        HG_UNROLL
        for (int k = 0; k < num_vectors; k++)
            *(HG_N(loose) *)(y + (k < num_vectors - 1 ? column + k * HG_LANES : last_column)) = acc[k];
    }
}

HG_INLINE void HG_N(panel_of_chunk)(const hg_gather_args *a, int64_t first, int64_t last, void *partial, int64_t column,
                                    int64_t last_column, const int num_vectors, const int scaled)
{
    HG_A *sums = (HG_A *)partial;
    HG_N(vec) acc[HG_MAX_VECTORS];
    HG_N(sum)(acc, a, first, last, last, column, last_column, num_vectors, scaled);
    HG_UNROLL
    for (int k = 0; k < num_vectors; k++)
        *(HG_N(loose) *)(sums + (k < num_vectors - 1 ? column + k * HG_LANES : last_column)) = acc[k];
}

/* One function per number of vectors and per presence of coefficients, so that the accumulators are registers. */
#define HG_CASES(call)                                                                                                 \
    switch (num_vectors) {                                                                                             \
    case 1: if (scaled) call(1, 1); else call(1, 0); break;                                                            \
    HG_WIDE_CASES(call)                                                                                                \
    }
#if HG_MAX_VECTORS == 1
#define HG_WIDE_CASES(call)
#elif HG_MAX_VECTORS == 2
#define HG_WIDE_CASES(call) case 2: if (scaled) call(2, 1); else call(2, 0); break;
#else
#define HG_WIDE_CASES(call)                                                                                            \
    case 2: if (scaled) call(2, 1); else call(2, 0); break;                                                            \
    case 3: if (scaled) call(3, 1); else call(3, 0); break;                                                            \
    case 4: if (scaled) call(4, 1); else call(4, 0); break;                                                            \
    case 5: if (scaled) call(5, 1); else call(5, 0); break;                                                            \
    case 6: if (scaled) call(6, 1); else call(6, 0); break;                                                            \
    case 7: if (scaled) call(7, 1); else call(7, 0); break;                                                            \
    case 8: if (scaled) call(8, 1); else call(8, 0); break;
#endif

/* Calls the panel function for every panel of the row. Panels hold whole cache lines (units), as many as each other give
 * or take one: no line is read for two panels, and where there are several panels the last has two units or more, so
 * that its overlapping vector never reaches into another panel, whose results may be stored already. */
#define HG_PANELS(call)                                                                                                \
    const int scaled = a->weight || a->source_scale;                                                                   \
    const int64_t vectors = (a->width + HG_LANES - 1) / HG_LANES;                                                      \
    const int64_t per_unit = HG_MIN(HG_MAX(64 / (HG_LANES * sizeof(HG_X)), 1), HG_MAX(HG_MAX_VECTORS / 2, 1));         \
    const int64_t max_units = HG_MAX(HG_MAX_VECTORS / per_unit, 1);                                                    \
    const int64_t units = (vectors + per_unit - 1) / per_unit;                                                         \
    const int64_t panels = (units + max_units - 1) / max_units;                                                        \
    for (int64_t p = 0; p < panels; p++) {                                                                             \
        const int64_t from = units * p / panels * per_unit, to = units * (p + 1) / panels * per_unit;                  \
        const int num_vectors = (int)((to < vectors ? to : vectors) - from);                                           \
        const int64_t column = from * HG_LANES;                                                                        \
        const int64_t last_column = to < vectors ? (to - 1) * HG_LANES : a->width - HG_LANES;                          \
        HG_CASES(call)                                                                                                 \
    }

static __attribute__((noinline)) void HG_N(rows)(const hg_gather_args *a, int64_t first, int64_t last)
{
#define HG_CALL(n, s) HG_N(panel)(a, first, last, column, last_column, n, s)
    HG_PANELS(HG_CALL)
#undef HG_CALL
}

static __attribute__((noinline)) void HG_N(chunk)(const hg_gather_args *a, int64_t first, int64_t last, void *partial)
{
#define HG_CALL(n, s) HG_N(panel_of_chunk)(a, first, last, partial, column, last_column, n, s)
    HG_PANELS(HG_CALL)
#undef HG_CALL
}

#undef HG_N
#undef HG_MIN
#undef HG_MAX
#undef HG_PANELS
#undef HG_CASES
#undef HG_WIDE_CASES
#undef HG_TAG
#undef HG_X
#undef HG_A
#undef HG_LANES
#undef HG_MAX_VECTORS
#undef HG_IS_BF16
