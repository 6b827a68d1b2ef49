/* The products for processors with AVX2 and FMA, and the widening of their factors. */
#include "products.h"
#include "vector.h"

#if defined(__x86_64__)
/* Included headers come first: what follows may use instructions that the processor may not have. */
#include "target_avx2.h"

#define HG_VECTOR_BYTES 32
#define HG_HEIGHT 6
#define HG_NAME(name) HG_JOIN(name, _avx2)
#include "products_rows.h"

void hg_widen_avx2(float *to, int64_t stride, const uint16_t *x, int64_t x_stride, int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < rows; i++) {
        float *restrict row = to + i * stride;
        for (int64_t c = 0; c < depth; c++)
            row[c] = hg_float_of_bf16(x[i * x_stride + c]);
    }
}

#include "target_end.h"
#endif
