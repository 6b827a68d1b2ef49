/* Vectors of any number of lanes, one included, from the compiler's vector extensions; included once per path.
 *
 * HG_VECTOR_BYTES is the register width of the path. Written this way the same source gives SSE2, AVX2, AVX-512 and
 * NEON code, and shorter vectors serve rows narrower than a register.
 */
#ifndef HG_VECTOR_H
#define HG_VECTOR_H

#include <stdint.h>
#include <string.h>

#define HG_INLINE static inline __attribute__((always_inline))
#define HG_JOIN_(a, b) a##b
#define HG_JOIN(a, b) HG_JOIN_(a, b)

/* A loop whose iterations touch different elements, though the compiler cannot see it (out may be x). */
#if defined(__clang__)
#define HG_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define HG_UNROLL _Pragma("unroll")
#else
#define HG_INDEPENDENT _Pragma("GCC ivdep")
#define HG_UNROLL _Pragma("GCC unroll 16")
#endif

/* A product (in a variable) that is rounded here. Else the compiler may make one instruction of it and of what is added to it,
 * which rounds once; at one place it does and at another, of the same code, it does not. Within one statement `sum += a * b`
 * it always does: setup.py asks for that. */
#if defined(__clang__)
#define HG_ROUNDED(product) (void)0             /* it makes one instruction within a statement alone */
#elif defined(__x86_64__)
#define HG_ROUNDED(product) __asm__("" : "+v"(product))
#elif defined(__aarch64__)
#define HG_ROUNDED(product) __asm__("" : "+w"(product))
#else
#define HG_ROUNDED(product) __asm__("" : "+m"(product))
#endif

HG_INLINE float hg_float_of_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* To nearest, ties to even; every NaN becomes 0x7fc0, as torch has it. */
HG_INLINE uint16_t hg_bf16_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)(value != value ? 0x7fc0u : rounded);
}

/* IEEE's half precision. Its smallest numbers, which have no leading one, get that and lose it again: so no step makes a
 * number that a processor may flush to zero. */
#define HG_F16_REBIAS (112u << 23)
#define HG_F16_TINY (1u << 23)
#define HG_F16_ONE (113u << 23)
#define HG_F16_LOST 0x1p-14f
#define HG_F16_INFINITE (0x7c00u << 13)

HG_INLINE float hg_float_of_f16(uint16_t h)
{
    const uint32_t bits = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t whole = bits < HG_F16_TINY ? bits + HG_F16_ONE : bits + HG_F16_REBIAS;
    float value;
    memcpy(&value, &whole, 4);
    value = bits < HG_F16_TINY ? value - HG_F16_LOST : value;
    memcpy(&whole, &value, 4);
    whole |= sign | (bits >= HG_F16_INFINITE ? 0x7f800000u : 0);
    memcpy(&value, &whole, 4);
    return value;
}

#endif
