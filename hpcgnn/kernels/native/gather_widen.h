/* Template: a unit of float32 from a unit of half precision or of bytes; included by gather_unit.h.
 *
 * The processors of the wide paths have an instruction for each. Others take some steps, in the compiler's vectors.
 */
#if HG_LANES == 1
HG_INLINE float HG_TAGGED(widened)(const HG_X *p)
{
    return HG_KIND == HG_HALF ? hg_float_of_f16((uint16_t)*p) : (float)*p;
}
#elif HG_VECTOR_BYTES >= 32 && HG_LANES >= 4
HG_INLINE HG_TAGGED(vec) HG_TAGGED(widened)(const HG_X *p)
{
#if HG_LANES == 16 && HG_KIND == HG_HALF
    return (HG_TAGGED(vec))_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
#elif HG_LANES == 16
    return (HG_TAGGED(vec))_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)p)));
#elif HG_LANES == 8 && HG_KIND == HG_HALF
    return (HG_TAGGED(vec))_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
#elif HG_LANES == 8
    return (HG_TAGGED(vec))_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)p)));
#elif HG_KIND == HG_HALF
    return (HG_TAGGED(vec))_mm_cvtph_ps(_mm_loadl_epi64((const __m128i_u *)p));
#else
    int32_t four;
    memcpy(&four, p, 4);
    return (HG_TAGGED(vec))_mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four)));
#endif
}
#else
typedef HG_X HG_TAGGED(loose_x) __attribute__((vector_size(HG_LANES * sizeof(HG_X)), aligned(sizeof(HG_X)), may_alias));

HG_INLINE HG_TAGGED(vec) HG_TAGGED(widened)(const HG_X *p)
{
    const HG_TAGGED(loose_x) x = *(const HG_TAGGED(loose_x) *)p;
#if HG_KIND == HG_HALF
    const HG_TAGGED(bits) all = __builtin_convertvector(x, HG_TAGGED(bits));
    const HG_TAGGED(bits) bits = (all & 0x7fffu) << 13, sign = (all & 0x8000u) << 16;
    const HG_TAGGED(bits) tiny = (HG_TAGGED(bits))(bits < HG_F16_TINY);
    const HG_TAGGED(bits) small = (HG_TAGGED(bits))(HG_TAGGED(floats)(bits + HG_F16_ONE) - HG_F16_LOST);
    const HG_TAGGED(bits) infinite = (HG_TAGGED(bits))(bits >= HG_F16_INFINITE) & 0x7f800000u;
    return HG_TAGGED(floats)((tiny & small) | (~tiny & (bits + HG_F16_REBIAS)) | sign | infinite);
#else
    return __builtin_convertvector(x, HG_TAGGED(vec));
#endif
}
#endif
