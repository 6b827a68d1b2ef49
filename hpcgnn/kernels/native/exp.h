/* Template: exp of a register of floats or doubles, in the manner of S. L. Moshier's Cephes library.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, by adding and taking away 1.5 * 2^23 (2^52), which rounds to an integer and
 * leaves it in the low bits; exp(r) by a polynomial; 2^n by writing n into the exponent. Below the smallest normal
 * number the result is 0; above the largest it stays there. NaN gives NaN. Errors: 2 ulp (float), 2 ulp (double).
 */
typedef float hg_exp_f32 __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef int32_t hg_exp_i32 __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef double hg_exp_f64 __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef int64_t hg_exp_i64 __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef uint32_t hg_exp_u32 __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef uint64_t hg_exp_u64 __attribute__((vector_size(HG_VECTOR_BYTES)));

#define HG_SELECT(ints, mask, yes, no) (((mask) & (ints)(yes)) | (~(mask) & (ints)(no)))

#define HG_EXP_LOWEST_F32 (-87.33654f)
#define HG_EXP_LOWEST_F64 (-708.39)

/* Of numbers between HG_EXP_LOWEST and the largest with a finite result; of others anything. */
HG_INLINE hg_exp_f32 exp_within_f32(hg_exp_f32 x)
{
    const hg_exp_f32 zero = {0}, magic = zero + 12582912.0f;
    const hg_exp_f32 shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    const hg_exp_f32 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const hg_exp_f32 square = r * r;        /* pairs of terms side by side: half as long a wait as one behind the other */
    hg_exp_f32 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * square + (r * 8.3334519073e-3f + 4.1665795894e-2f);
    p = p * square + (r * 1.6666665459e-1f + 5.0000001201e-1f);
    p = p * square + r + 1.0f;
    hg_exp_f32 result = p * (hg_exp_f32)(((hg_exp_u32)shifted << 23) + 0x3f800000);
    HG_ROUNDED(result);
    return result;
}

HG_INLINE hg_exp_f64 exp_within_f64(hg_exp_f64 x)
{
    const hg_exp_f64 zero = {0}, magic = zero + 6755399441055744.0;
    const hg_exp_f64 shifted = x * 1.4426950408889634 + magic, n = shifted - magic;
    const hg_exp_f64 r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
    hg_exp_f64 p = zero + 1.0 / 6227020800.0;           /* Taylor: the next term is below 1e-17 */
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * (r * r) + r + 1.0;
    hg_exp_f64 result = p * (hg_exp_f64)(((hg_exp_u64)shifted << 52) + 0x3ff0000000000000);
    HG_ROUNDED(result);
    return result;
}

/* The larger one, x if that is not a number; and x where it is above 0, else y. With AVX-512 the compiler makes of the general
 * form five instructions in place of two. */
#define HG_BOUNDED(type, vector, ints)                                                                                 \
    HG_INLINE vector at_least_##type(vector y, vector x)                                                               \
    {                                                                                                                  \
        const ints below = x < y;                                                                                      \
        return (vector)HG_SELECT(ints, below, y, x);                                                                   \
    }                                                                                                                  \
    HG_INLINE vector positive_or_##type(vector x, vector y)                                                            \
    {                                                                                                                  \
        const ints positive = x > (vector){0};                                                                         \
        return (vector)HG_SELECT(ints, positive, x, y);                                                                \
    }
#if HG_VECTOR_BYTES == 64
HG_INLINE hg_exp_f32 at_least_f32(hg_exp_f32 y, hg_exp_f32 x)
{
    return (hg_exp_f32)_mm512_max_ps((__m512)y, (__m512)x);
}

HG_INLINE hg_exp_f32 positive_or_f32(hg_exp_f32 x, hg_exp_f32 y)
{
    const __mmask16 positive = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return (hg_exp_f32)_mm512_mask_blend_ps(positive, (__m512)y, (__m512)x);
}
#else
HG_BOUNDED(f32, hg_exp_f32, hg_exp_i32)
#endif
HG_BOUNDED(f64, hg_exp_f64, hg_exp_i64)

#define HG_EXP(type, vector, ints, lowest, highest)                                                                    \
    HG_INLINE vector exp_##type(vector x)                                                                              \
    {                                                                                                                  \
        const vector zero = {0}, most = zero + highest;                                                                \
        const ints below = x < zero + lowest, above = x > most;                                                        \
        x = (vector)HG_SELECT(ints, above, most, at_least_##type(zero + lowest, x));                                   \
        return (vector)((ints)exp_within_##type(x) & ~below);                                                          \
    }
HG_EXP(f32, hg_exp_f32, hg_exp_i32, HG_EXP_LOWEST_F32, 88.37626f)
HG_EXP(f64, hg_exp_f64, hg_exp_i64, HG_EXP_LOWEST_F64, 709.08)
