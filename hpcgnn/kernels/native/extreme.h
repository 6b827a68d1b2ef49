/* Template: the largest of each row's sources, column by column, and its gradient.
 *
 * Plain loops over columns that the compiler turns into vectors: like gather they wait for memory, and y and count of a
 * row stay in the first-level cache.
 */

/* yes or no, by the bits of mask: with a condition in its place gcc 12 leaves the loop as it is. */
HG_INLINE HG_E HG_T(chosen)(HG_I mask, HG_E yes, HG_E no)
{
    HG_I bits, others;
    memcpy(&bits, &yes, sizeof bits);
    memcpy(&others, &no, sizeof others);
    bits = (bits & mask) | (others & ~mask);
    memcpy(&yes, &bits, sizeof yes);
    return yes;
}

static void HG_T(largest_rows)(const hg_extreme_args *a, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const int64_t row = a->rows ? a->rows[i] : i;
        HG_E *restrict y = (HG_E *)a->y + row * a->y_stride, *restrict count = (HG_E *)a->count + row * a->count_stride;
        for (int64_t e = a->indptr[i]; e < a->indptr[i + 1]; e++) {
            const HG_E *restrict x = (const HG_E *)a->x + a->indices[e] * a->x_stride;
            if (e + 4 < a->indptr[i + 1])
                for (int64_t b = 0; b < a->width; b += 64 / (int64_t)sizeof(HG_E))
                    __builtin_prefetch((const HG_E *)a->x + a->indices[e + 4] * a->x_stride + b);
            HG_INDEPENDENT
            for (int64_t c = 0; c < a->width; c++) {
                const HG_E value = x[c], held = y[c];
                const HG_I above = -(HG_I)((value > held) | (value != value));  /* NaN stays, and is seen in the loss */
                count[c] = HG_T(chosen)(above, 1, count[c] + (HG_E)(value == held));
                y[c] = HG_T(chosen)(above, value, held);
            }
        }
    }
}

/* A source gets its row's share of the gradient in the columns where it is the largest. */
static void HG_T(largest_gradient_rows)(const hg_extreme_args *a, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const int64_t row = a->rows ? a->rows[i] : i;
        const HG_E *restrict y = (const HG_E *)a->y + row * a->y_stride, *restrict gy = (const HG_E *)a->gy + row * a->gy_stride;
        for (int64_t e = a->indptr[i]; e < a->indptr[i + 1]; e++) {
            const HG_E *x = (const HG_E *)a->x + a->indices[e] * a->x_stride;
            HG_E *gx = (HG_E *)a->gx + a->indices[e] * a->gx_stride;
            HG_INDEPENDENT
            for (int64_t c = 0; c < a->width; c++)
                gx[c] = HG_T(chosen)(-(HG_I)(x[c] == y[c]), gy[c], 0);
        }
    }
}
