/* Which vector paths this processor can run. The library may be compiled on one kind of node and run on another, so
 * the question is asked at run time; the answer's owner is the caller, which passes the path to every call. */
#include "hg.h"

/* 1 if the processor (and the operating system) can run the path, else 0. */
HG_EXPORT int hg_supports(int path)
{
    if (path == HG_BASELINE)
        return 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (path == HG_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (path == HG_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return 0;
}

const hg_kernels *hg_table(int path)
{
#if defined(__x86_64__)
    if (path == HG_AVX2)
        return &hg_kernels_avx2;
    if (path == HG_AVX512)
        return &hg_kernels_avx512;
#endif
    (void)path;
    return &hg_kernels_baseline;
}
