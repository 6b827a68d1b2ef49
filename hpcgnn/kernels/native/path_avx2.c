/* All kernels for processors with AVX2 and FMA. Only dispatch.c calls them, after asking the processor. */
#include "attention.h"
#include "products.h"
#include "table.h"
#include "vector.h"

#if defined(HG_HAS_AVX2)
#include <immintrin.h>

/* Included headers come first: what follows may use instructions that the processor may not have. */
#include "target_avx2.h"

#define HG_VECTOR_BYTES 32
#define HG_TABLE hg_kernels_avx2
#include "path.h"

#include "target_end.h"
#endif
