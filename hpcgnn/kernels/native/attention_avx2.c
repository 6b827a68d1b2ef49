/* The attention kernels for processors with AVX2 and FMA. Only attention.c calls them, after dispatch.c has asked. */
#include "attention.h"
#include "vector.h"

#if defined(__x86_64__)
/* Included headers come first: what follows may use instructions that the processor may not have. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define HG_VECTOR_BYTES 32
#define HG_TABLE hg_attention_avx2
#include "attention_path.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
