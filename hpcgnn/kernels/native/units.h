/* Template: a unit of HG_LANES columns, for rows whose heads are treated unit by unit, and the kernels of such rows.
 * Undefines HG_LANES at its end.
 *
 * A unit is the largest power of two of columns that fits both a register and a head. The last unit of a head ends with
 * the head and may overlap its neighbour: width 40 is five units of 8, width 7 two of 4, width 1 is scalar.
 */
#define HG_IN_UNITS(name) HG_JOIN(HG_JOIN(name##_, HG_TYPE), HG_JOIN(_, HG_LANES))
#define HG_GROUP 4

#if HG_LANES == 1
#define HG_PICK(mask, yes, no) ((mask) ? (yes) : (no))
typedef HG_E HG_IN_UNITS(vec);
typedef HG_E HG_IN_UNITS(loose) __attribute__((may_alias));
#else
#define HG_PICK(mask, yes, no) ((HG_IN_UNITS(vec))HG_SELECT(HG_IN_UNITS(lanes), mask, yes, no))
typedef HG_E HG_IN_UNITS(vec) __attribute__((vector_size(HG_LANES * sizeof(HG_E))));
typedef HG_E HG_IN_UNITS(loose) __attribute__((vector_size(HG_LANES * sizeof(HG_E)), aligned(sizeof(HG_E)), may_alias));
typedef HG_I HG_IN_UNITS(lanes) __attribute__((vector_size(HG_LANES * sizeof(HG_E))));
#endif

/* Columns of a head, and of all, in padded sums. */
#define HG_PADDED(width) (((width) + HG_LANES - 1) / HG_LANES * HG_LANES)
/* First column of unit u of a head of `units`. */
#define HG_COLUMN(u) ((u) + 1 < units ? (u) * HG_LANES : width - HG_LANES)

/* Lane k (k < 4) of the result is the sum of the lanes of v[k]; stored to out[k * stride], k < num. */
#if HG_LANES >= 4
/* Halves of a and b side by side; then quarters of those; then within the quarters. */
#define HG_HALF(l) ((l) < HG_LANES / 2 ? (l) : (l) + HG_LANES / 2)
#define HG_HALF2(l) (HG_HALF(l) + HG_LANES / 2)
#define HG_QUARTER(l) ((l) / (HG_LANES / 4) * (HG_LANES / 2) + (l) % (HG_LANES / 4))
#define HG_QUARTER2(l) (HG_QUARTER(l) + HG_LANES / 4)
#define HG_NEXT(l) ((l) ^ 1)
#define HG_NEXT_BUT_ONE(l) ((l) ^ 2)
#define HG_FRONT(l) ((l) * (HG_LANES / 4) % HG_LANES)
#define HG_MIX(a, b, f) HG_TAKE(HG_IN_UNITS(lanes), HG_LANES, a, b, f)
#endif

HG_INLINE void HG_IN_UNITS(sum_lanes)(HG_E *out, int64_t stride, const HG_IN_UNITS(vec) v[HG_GROUP], const int num)
{
#if HG_LANES == 1
    for (int k = 0; k < num; k++)
        out[k * stride] = v[k];
#elif HG_LANES == 2
    for (int k = 0; k < num; k++)
        out[k * stride] = v[k][0] + v[k][1];
#else
    HG_IN_UNITS(vec) ab = HG_MIX(v[0], v[1], HG_HALF) + HG_MIX(v[0], v[1], HG_HALF2);
    HG_IN_UNITS(vec) cd = HG_MIX(v[2], v[3], HG_HALF) + HG_MIX(v[2], v[3], HG_HALF2);
    HG_IN_UNITS(vec) all = HG_MIX(ab, cd, HG_QUARTER) + HG_MIX(ab, cd, HG_QUARTER2);
#if HG_LANES == 16
    all += HG_MIX(all, all, HG_NEXT_BUT_ONE);
#endif
#if HG_LANES >= 8
    all += HG_MIX(all, all, HG_NEXT);
    all = HG_MIX(all, all, HG_FRONT);
#endif
    HG_UNROLL
    for (int k = 0; k < num; k++)
        out[k * stride] = all[k];
#endif
}

#include "attention_rows.h"
#include "between_rows.h"

#undef HG_IN_UNITS
#undef HG_GROUP
#undef HG_PADDED
#undef HG_COLUMN
#undef HG_HALF
#undef HG_HALF2
#undef HG_QUARTER
#undef HG_QUARTER2
#undef HG_NEXT
#undef HG_NEXT_BUT_ONE
#undef HG_FRONT
#undef HG_MIX
#undef HG_PICK
#undef HG_LANES
