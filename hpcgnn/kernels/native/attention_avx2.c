/* The attention kernels for processors with AVX2 and FMA. Only attention.c calls them, after dispatch.c has asked. */
#include "attention.h"
#include "vector.h"

#if defined(__x86_64__)
/* Included headers come first: what follows may use instructions that the processor may not have. */
#include "target_avx2.h"

#define HG_VECTOR_BYTES 32
#define HG_TABLE hg_attention_avx2
#include "attention_path.h"

#include "target_end.h"
#endif
