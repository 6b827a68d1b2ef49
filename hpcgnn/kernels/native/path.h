/* A unit of one vector path: HG_PART, a header of templates and their table, with the target's instructions allowed. Each
 * path_*.c includes this once, with HG_VECTOR_BYTES and HG_PART defined. A path has three units, which compile beside each
 * other: common.h, and typed.h for each element type. Only dispatch.c uses the tables, after asking the processor.
 *
 * A template that is written for an element type finds HG_TYPE (the suffix of its names: f32, f64), HG_E (the element),
 * HG_I (an integer of its size) and HG_FULL (lanes of a register).
 */
#include "attention.h"
#include "products.h"
#include "table.h"
#include "vector.h"

#if HG_VECTOR_BYTES == 64
#define HG_ON_PATH(name) HG_JOIN(name, _avx512)
#elif HG_VECTOR_BYTES == 32
#define HG_ON_PATH(name) HG_JOIN(name, _avx2)
#else
#define HG_ON_PATH(name) HG_JOIN(name, _baseline)
#endif

/* Numbers of a register; their digits are joined with names. */
#if HG_VECTOR_BYTES == 64
#define HG_F32_LANES 16
#define HG_F64_LANES 8
#elif HG_VECTOR_BYTES == 32
#define HG_F32_LANES 8
#define HG_F64_LANES 4
#else
#define HG_F32_LANES 4
#define HG_F64_LANES 2
#endif
#define HG_T(name) HG_JOIN(name##_, HG_TYPE)

/* A vector whose lane l is lane f(l) of a and b, one behind the other. */
#define HG_LANES_2(f) f(0), f(1)
#define HG_LANES_4(f) HG_LANES_2(f), f(2), f(3)
#define HG_LANES_8(f) HG_LANES_4(f), f(4), f(5), f(6), f(7)
#define HG_LANES_16(f) HG_LANES_8(f), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#if defined(__clang__) || __GNUC__ >= 12
#define HG_TAKE(ints, lanes, a, b, f) __builtin_shufflevector(a, b, HG_JOIN(HG_LANES_, lanes)(f))
#else
#define HG_TAKE(ints, lanes, a, b, f) __builtin_shuffle(a, b, (ints){HG_JOIN(HG_LANES_, lanes)(f)})
#endif

/* Templates that are written for both types at once are used for one of them alone. */
#pragma GCC diagnostic ignored "-Wunused-function"

/* <immintrin.h> comes before what may use instructions that the processor may not have. */
#if HG_VECTOR_BYTES == 16 && defined(HG_HAS_BASELINE)
#include HG_PART
#elif HG_VECTOR_BYTES == 32 && defined(HG_HAS_AVX2) || HG_VECTOR_BYTES == 64 && defined(HG_HAS_AVX512)
#include <immintrin.h>
#if defined(__clang__) && HG_VECTOR_BYTES == 64
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#if HG_VECTOR_BYTES == 64
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#endif
#include HG_PART
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
