/* The products for processors with AVX-512. */
#include "products.h"
#include "vector.h"

#if defined(__x86_64__)
#include "target_avx512.h"

#define HG_VECTOR_BYTES 64
#define HG_HEIGHT 8
#define HG_NAME(name) HG_JOIN(name, _avx512)
#include "products_rows.h"

#include "target_end.h"
#endif
