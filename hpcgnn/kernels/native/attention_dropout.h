/* Template: the random words of edges. They belong to (destination, source, how many equal edges come before), so that
 * the owner of either end, at any number of ranks, finds the same ones.
 *
 * Counter: low halves of the destination's and the source's ids, 16 bits more of each, occurrence * groups + group,
 * with a group for every four heads. Duplicates of an edge are neighbours in a row of either direction, in which they
 * count alike: hence the look at the edge before. Scores of whole rows have the words of the general rule (EdgeTile.edge_ids,
 * then as of dropout): the counter of a number that is made of the same.
 */
#define HG_SPREAD UINT64_C(0x9E3779B97F4A7C15)
#define HG_AGAIN UINT64_C(0xBF58476D1CE4E5B9)

HG_INLINE void edge_words(const hg_attention_args *a, hg_attention_scratch *s, int64_t i, int64_t e, int64_t num,
                          const int forward)
{
    const int64_t groups = (a->heads + 3) / 4, begin = a->indptr[i];
    const uint64_t row_id = (uint64_t)a->row_ids[a->rows ? a->rows[i] : i];
    const int32_t *indices = a->indices;
    uint32_t occurrence = 0;
    int64_t n = 0;
    for (int64_t back = e; back > begin && indices[back] == indices[back - 1]; back--)
        occurrence++;
    for (int64_t t = 0; t < num; t++) {
        const uint64_t column_id = (uint64_t)a->column_ids[indices[e + t]];
        const uint64_t dst = forward ? row_id : column_id, src = forward ? column_id : row_id;
        const uint32_t high = (uint32_t)((dst >> 32) & 0xffff) | (uint32_t)((src >> 32) & 0xffff) << 16;
        if (t > 0)
            occurrence = indices[e + t] == indices[e + t - 1] ? occurrence + 1 : 0;
        const uint64_t id = dst * HG_SPREAD + src + occurrence * HG_AGAIN;
        for (int64_t g = 0; g < groups && a->score; g++, n++) {
            s->counters[0][n] = (uint32_t)g;
            s->counters[1][n] = (uint32_t)id;
            s->counters[2][n] = (uint32_t)(id >> 32);
            s->counters[3][n] = 0;
        }
        for (int64_t g = 0; g < groups && !a->score; g++, n++) {
            s->counters[0][n] = (uint32_t)dst;
            s->counters[1][n] = (uint32_t)src;
            s->counters[2][n] = high;
            s->counters[3][n] = (uint32_t)(occurrence * groups + g);
        }
    }
    s->table->philox_blocks(&s->keys, s->counters[0], s->counters[1], s->counters[2], s->counters[3], n, s->words);
}
