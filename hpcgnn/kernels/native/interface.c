/* What Python asks of the library itself before it calls anything else: whether both have read the same interface.h. */
#include <string.h>

#include "hg.h"

#if !defined(HG_SOURCES)
#error "HG_SOURCES: the hash of the sources, which setup.py computes, is to be defined"
#endif

HG_EXPORT const char *hg_sources(void)
{
    return HG_SOURCES;
}

HG_EXPORT int64_t hg_value(const char *name)
{
#define HG_CONSTANT(known) {#known, known}
#define HG_STRUCTURE(known) {#known, sizeof(known)}
    static const struct { const char *name; int64_t value; } known[] = {
        HG_CONSTANT(HG_F32), HG_CONSTANT(HG_F64), HG_CONSTANT(HG_BF16), HG_CONSTANT(HG_F16), HG_CONSTANT(HG_I8),
        HG_CONSTANT(HG_BASELINE), HG_CONSTANT(HG_AVX2), HG_CONSTANT(HG_AVX512),
        HG_CONSTANT(HG_FLOAT_PRODUCTS), HG_CONSTANT(HG_ROUNDED_PRODUCTS),
        HG_CONSTANT(HG_VALID), HG_CONSTANT(HG_INDPTR_START), HG_CONSTANT(HG_INDPTR_ORDER), HG_CONSTANT(HG_INDPTR_END),
        HG_CONSTANT(HG_ROW_RANGE), HG_CONSTANT(HG_ROW_ORDER), HG_CONSTANT(HG_INDEX_RANGE),
        HG_CONSTANT(HG_ROWS_ARE_DESTINATIONS), HG_CONSTANT(HG_ROWS_ARE_SOURCES), HG_CONSTANT(HG_ROWS_ARE_EITHER),
        HG_CONSTANT(HG_SCORE_HALVES), HG_CONSTANT(HG_SCORE_SUM), HG_CONSTANT(HG_SCORE_PRODUCT), HG_CONSTANT(HG_SCORE_MIXED),
        HG_CONSTANT(HG_REDUCE_SUM), HG_CONSTANT(HG_REDUCE_MOMENTS),
        HG_CONSTANT(HG_SUMMED_ROWS), HG_CONSTANT(HG_SUMMED_SHARES),
        HG_STRUCTURE(hg_gather_args), HG_STRUCTURE(hg_extreme_args), HG_STRUCTURE(hg_attention_args),
        HG_STRUCTURE(hg_projection_args), HG_STRUCTURE(hg_edge_dropout_args), HG_STRUCTURE(hg_convolution_args),
        HG_STRUCTURE(hg_message_args),
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].value;
    return -1;
}
