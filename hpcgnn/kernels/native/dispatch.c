/* What this processor can run, and the table of each vector path. The library may be compiled on one kind of node and run on
 * another, so the question is asked at run time; the answer's owner is the caller, which passes the path to every call. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "table.h"

/* Python compares it with the hash of the sources beside it. setup.py computes both. */
HG_EXPORT const char *hg_sources(void)
{
    return HG_SOURCES;
}

#if defined(__x86_64__)
/* F16C, which not every compiler has a name for. */
static int converts_halves(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
}
#endif

HG_EXPORT int hg_supports(int path)
{
#if defined(HG_HAS_BASELINE)
    if (path == HG_BASELINE)
        return 1;
#endif
#if defined(HG_HAS_AVX2)
    __builtin_cpu_init();
    if (path == HG_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves();
#endif
#if defined(HG_HAS_AVX512)
    __builtin_cpu_init();
    if (path == HG_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves();
#endif
    return 0;
}

/* That library is slower on the processors of one maker (docs/kernels.md). */
HG_EXPORT int hg_multiplies(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 + (__builtin_cpu_is("amd") != 0) : 0;
#else
    return 0;
#endif
}

const hg_kernels *hg_table(int path)
{
    switch (path) {
#if defined(HG_HAS_AVX2)
    case HG_AVX2:
        return &hg_kernels_avx2;
#endif
#if defined(HG_HAS_AVX512)
    case HG_AVX512:
        return &hg_kernels_avx512;
#endif
#if defined(HG_HAS_BASELINE)
    case HG_BASELINE:
        return &hg_kernels_baseline;
#endif
    default:
        return 0;
    }
}
