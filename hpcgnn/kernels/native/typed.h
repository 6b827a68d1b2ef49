/* The templates of a vector path that are written for an element type, of HG_PART_BYTES bytes, and their table. */
#if HG_PART_BYTES == 4
#define HG_TYPE f32
#define HG_E float
#define HG_I int32_t
#define HG_FULL HG_F32_LANES
#else
#define HG_TYPE f64
#define HG_E double
#define HG_I int64_t
#define HG_FULL HG_F64_LANES
#endif

#include "exp.h"
#include "between.h"
#include "loss.h"
#include "attention_dropout.h"
#include "extreme.h"
#include "attention_weights.h"
#include "attention_edges.h"
#include "narrow.h"
#define HG_LANES 1
#include "units.h"
#define HG_LANES 2
#include "units.h"
#if HG_FULL >= 4
#define HG_LANES 4
#include "units.h"
#endif
#if HG_FULL >= 8
#define HG_LANES 8
#include "units.h"
#endif
#if HG_FULL >= 16
#define HG_LANES 16
#include "units.h"
#endif
#include "by_head.h"

const hg_typed_kernels HG_ON_PATH(HG_T(hg)) = {
    .largest = HG_T(largest_rows),
    .largest_gradient = HG_T(largest_gradient_rows),
    .attention = {HG_T(forward_rows), HG_T(forward_chunk), HG_T(forward_merge), HG_T(backward_rows), HG_T(backward_chunk),
                  HG_T(backward_merge), HG_T(score_rows), HG_T(score_chunk), HG_T(score_merge), HG_T(score_return),
                  HG_T(score_add)},
    .between = {HG_T(elu), HG_T(elu_gradient), HG_T(normalise), HG_T(bias_gradient)},
    .cross_entropy = HG_T(cross_entropy),
    .narrow = {HG_T(magnitude_of), HG_T(levels_of_row), HG_T(widen_row), HG_T(codes_of_row), HG_T(decode_row)},
};
