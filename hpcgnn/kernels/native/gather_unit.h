/* Template: the unit of columns that a register, or a pair of them, sums.
 *
 * Included with HG_TAG (suffix of the names), HG_KIND and HG_LANES, which it undefines; defines for the templates at its
 * end: HG_X (stored element), HG_A (accumulation element), HG_COLUMNS (columns of a unit), the type unit_TAG and its
 * verbs.
 *
 * bfloat16 is read two columns at a time as 32-bit words: shifted left, a word is the float of its even column;
 * masked, of its odd one. That is one instruction each and needs no widening across lanes; even and odd columns are
 * summed in registers of their own and interleaved once per row. (Of widening with __builtin_convertvector gcc 12 makes
 * five instructions.)
 */
#define HG_TAGGED(name) HG_JOIN(gather_##name##_, HG_TAG)

#if HG_KIND == HG_DOUBLE
#define HG_A double
#define HG_IS_FULL (HG_LANES == HG_F64_LANES)
#else
#define HG_A float
#define HG_IS_FULL (HG_LANES == HG_F32_LANES)
#endif

#if HG_KIND == HG_PLAIN || HG_KIND == HG_DOUBLE
#define HG_X HG_A
#elif HG_KIND == HG_BYTE
#define HG_X int8_t
#else
#define HG_X uint16_t
#endif
#define HG_COLUMNS (HG_KIND == HG_PAIR ? 2 * HG_LANES : HG_LANES)

#if HG_LANES == 1
typedef HG_A HG_TAGGED(vec);
typedef HG_A HG_TAGGED(loose) __attribute__((may_alias));
typedef uint32_t HG_TAGGED(bits);
typedef uint32_t HG_TAGGED(loose_bits) __attribute__((aligned(2), may_alias));
#else
typedef HG_A HG_TAGGED(vec) __attribute__((vector_size(HG_LANES * sizeof(HG_A))));
typedef HG_A HG_TAGGED(loose) __attribute__((vector_size(HG_LANES * sizeof(HG_A)), aligned(sizeof(HG_A)), may_alias));
typedef uint32_t HG_TAGGED(bits) __attribute__((vector_size(HG_LANES * 4)));
typedef uint32_t HG_TAGGED(loose_bits) __attribute__((vector_size(HG_LANES * 4), aligned(2), may_alias));
#endif

/* Vectors of a unit. A unit is passed as a pointer to them, not as a struct: gcc keeps an unrolled array of vectors in
 * registers, but an array of structs of vectors on the stack. */
#define HG_VECTORS (HG_KIND == HG_PAIR ? 2 : 1)

#if HG_KIND == HG_PAIR || HG_KIND == HG_HALF
HG_INLINE HG_TAGGED(vec) HG_TAGGED(floats)(HG_TAGGED(bits) bits)
{
    HG_TAGGED(vec) values;
    memcpy(&values, &bits, sizeof values);
    return values;
}
#endif

#if HG_KIND == HG_HALF || HG_KIND == HG_BYTE
#include "gather_widen.h"
#endif

/* u += coefficient * p[0 .. HG_COLUMNS), the coefficient left out (not 1: a product costs) where `scaled` is 0. */
HG_INLINE void HG_TAGGED(add)(HG_TAGGED(vec) *u, const HG_X *p, HG_A coefficient, const int scaled)
{
    HG_TAGGED(vec) values[HG_VECTORS];
#if HG_KIND == HG_PAIR
    HG_TAGGED(bits) words = *(const HG_TAGGED(loose_bits) *)p;
    values[0] = HG_TAGGED(floats)(words << 16), values[1] = HG_TAGGED(floats)(words & 0xffff0000u);
#elif HG_KIND == HG_SINGLE
    values[0] = hg_float_of_bf16(*p);
#elif HG_KIND == HG_PLAIN || HG_KIND == HG_DOUBLE
    values[0] = *(const HG_TAGGED(loose) *)p;
#else
    values[0] = HG_TAGGED(widened)(p);
#endif
    HG_UNROLL
    for (int v = 0; v < HG_VECTORS; v++)
        if (scaled)
            u[v] += coefficient * values[v];
        else
            u[v] += values[v];
}

/* u *= factor, rounded before anything is added. */
HG_INLINE void HG_TAGGED(scale)(HG_TAGGED(vec) *u, HG_A factor)
{
    HG_UNROLL
    for (int v = 0; v < HG_VECTORS; v++) {
        u[v] *= factor;
        HG_ROUNDED(u[v]);
    }
}

/* Parks a unit in memory as it is (HG_COLUMNS elements, columns in no particular order), and takes it back. */
HG_INLINE void HG_TAGGED(park)(HG_A *p, const HG_TAGGED(vec) *u)
{
    HG_UNROLL
    for (int v = 0; v < HG_VECTORS; v++)
        *(HG_TAGGED(loose) *)(p + v * HG_LANES) = u[v];
}

HG_INLINE void HG_TAGGED(unpark)(HG_TAGGED(vec) *u, const HG_A *p)
{
    HG_UNROLL
    for (int v = 0; v < HG_VECTORS; v++)
        u[v] = *(const HG_TAGGED(loose) *)(p + v * HG_LANES);
}

/* Brings a parked unit's columns into their order; out must not overlap p. */
HG_INLINE void HG_TAGGED(unravel)(HG_A *out, const HG_A *p)
{
#if HG_KIND == HG_PAIR
    for (int l = 0; l < HG_LANES; l++) {
        out[2 * l] = p[l];
        out[2 * l + 1] = p[HG_LANES + l];
    }
#else
    memcpy(out, p, HG_COLUMNS * sizeof(HG_A));
#endif
}

/* Adds columns of a result that holds floats (or doubles), and stores such columns. */
HG_INLINE void HG_TAGGED(add_result)(HG_TAGGED(vec) *u, const HG_A *y)
{
#if HG_KIND == HG_PAIR
    HG_A parked[HG_COLUMNS];
    for (int l = 0; l < HG_LANES; l++) {
        parked[l] = y[2 * l];
        parked[HG_LANES + l] = y[2 * l + 1];
    }
    u[0] += *(const HG_TAGGED(loose) *)parked;
    u[1] += *(const HG_TAGGED(loose) *)(parked + HG_LANES);
#else
    u[0] += *(const HG_TAGGED(loose) *)y;
#endif
}

HG_INLINE void HG_TAGGED(store_result)(HG_A *y, const HG_TAGGED(vec) *u)
{
#if HG_KIND == HG_PAIR
    HG_A parked[HG_COLUMNS];
    HG_TAGGED(park)(parked, u);
    HG_TAGGED(unravel)(y, parked);
#else
    HG_TAGGED(park)(y, u);
#endif
}

#if HG_KIND == HG_PAIR || HG_KIND == HG_SINGLE
HG_INLINE void HG_TAGGED(store_bf16)(uint16_t *y, const HG_TAGGED(vec) *u)
{
#if HG_KIND == HG_PAIR && HG_LANES > 1
    HG_TAGGED(bits) even = (HG_TAGGED(bits))u[0], odd = (HG_TAGGED(bits))u[1];
    HG_TAGGED(bits) even_nan = (HG_TAGGED(bits))(u[0] != u[0]), odd_nan = (HG_TAGGED(bits))(u[1] != u[1]);
    even = (even + 0x7fffu + ((even >> 16) & 1u)) >> 16;
    odd = (odd + 0x7fffu + ((odd >> 16) & 1u)) & 0xffff0000u;
    even = (even & ~even_nan) | (even_nan & 0x7fc0u);
    odd = (odd & ~odd_nan) | (odd_nan & 0x7fc00000u);
    *(HG_TAGGED(loose_bits) *)y = even | odd;
#elif HG_KIND == HG_PAIR
    y[0] = hg_bf16_of_float(u[0]);
    y[1] = hg_bf16_of_float(u[1]);
#else
    *y = hg_bf16_of_float(u[0]);
#endif
}
#endif

#include "gather_narrow.h"
#if HG_IS_FULL
#include "gather_wide.h"
#endif

#undef HG_TAG
#undef HG_KIND
#undef HG_LANES
#undef HG_X
#undef HG_A
#undef HG_COLUMNS
#undef HG_VECTORS
#undef HG_TAGGED
#undef HG_IS_FULL
