/* The attention kernels for processors with AVX-512 (F, BW, DQ, VL). Only attention.c calls them, after dispatch.c has
 * asked. */
#include "attention.h"
#include "vector.h"

#if defined(__x86_64__)
/* Included headers come first: what follows may use instructions that the processor may not have. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif

#define HG_VECTOR_BYTES 64
#define HG_TABLE hg_attention_avx512
#include "attention_path.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
