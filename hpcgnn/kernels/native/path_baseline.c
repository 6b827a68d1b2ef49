/* All kernels for every processor of the architecture: SSE2 on x86-64, NEON on aarch64. */
#include "attention.h"
#include "products.h"
#include "table.h"
#include "vector.h"

#if defined(HG_HAS_BASELINE)
#define HG_VECTOR_BYTES 16
#define HG_TABLE hg_kernels_baseline
#include "path.h"
#endif
