/* Template: the reading of gather alone, as fast as we know how, for gather to be measured against.
 *
 * The rows are summed into one set of registers, whatever their bytes mean: no row structure, no coefficients, no
 * results. Rows of up to 8 registers have loops of fixed length; the end of a row is read with an overlapping register.
 */
typedef float hg_probe_vec __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef float hg_probe_loose __attribute__((vector_size(HG_VECTOR_BYTES), aligned(2), may_alias));
typedef uint16_t hg_probe_half __attribute__((may_alias));

/* num_vectors 0: any number. */
HG_INLINE float hg_probe_rows(const char *x, int64_t row_bytes, int64_t stride_bytes, const int32_t *indices,
                              int64_t num, int64_t readable, const int num_vectors)
{
    hg_probe_vec sums[4] = {{0}, {0}, {0}, {0}};
    const int64_t vectors = num_vectors ? num_vectors : (row_bytes + HG_VECTOR_BYTES - 1) / HG_VECTOR_BYTES;
    const int64_t edges_ahead = row_bytes >= 2048 ? 2 : row_bytes >= 512 ? 4 : 10;
    const int64_t lines = num_vectors ? (num_vectors * HG_VECTOR_BYTES + 63) / 64 : (row_bytes + 63) / 64;
    for (int64_t e = 0; e < num; e++) {
        if (e + edges_ahead < readable) {
            const char *ahead = x + indices[e + edges_ahead] * stride_bytes;
            HG_UNROLL
            for (int64_t b = 0; b < lines; b++)
                __builtin_prefetch(ahead + 64 * b);
            __builtin_prefetch(ahead + row_bytes - 1);
        }
        const char *row = x + indices[e] * stride_bytes;
        int64_t v = 0;
        for (; v + 4 < vectors; v += 4) {
            HG_UNROLL
            for (int k = 0; k < 4; k++)
                sums[k] += *(const hg_probe_loose *)(row + (v + k) * HG_VECTOR_BYTES);
        }
        for (; v + 1 < vectors; v++)
            sums[v & 3] += *(const hg_probe_loose *)(row + v * HG_VECTOR_BYTES);
        sums[3] += *(const hg_probe_loose *)(row + row_bytes - HG_VECTOR_BYTES);
    }
    sums[0] += sums[1] + sums[2] + sums[3];
    float sum = 0;
    for (int k = 0; k < HG_VECTOR_BYTES / 4; k++)
        sum += sums[0][k];
    return sum;
}

static float probe(const void *x, int64_t row_bytes, int64_t stride_bytes, const int32_t *indices, int64_t num,
                   int64_t readable)
{
#define HG_PROBE(n) return hg_probe_rows((const char *)x, row_bytes, stride_bytes, indices, num, readable, n)
    if (row_bytes < HG_VECTOR_BYTES) {
        float sum = 0;
        for (int64_t e = 0; e < num; e++)
            for (int64_t b = 0; b + 2 <= row_bytes; b += 2)
                sum += *(const hg_probe_half *)((const char *)x + indices[e] * stride_bytes + b);
        return sum;
    }
    switch ((row_bytes + HG_VECTOR_BYTES - 1) / HG_VECTOR_BYTES) {
    case 1: HG_PROBE(1);
    case 2: HG_PROBE(2);
    case 3: HG_PROBE(3);
    case 4: HG_PROBE(4);
    case 5: HG_PROBE(5);
    case 6: HG_PROBE(6);
    case 7: HG_PROBE(7);
    case 8: HG_PROBE(8);
    default: HG_PROBE(0);
    }
#undef HG_PROBE
}
