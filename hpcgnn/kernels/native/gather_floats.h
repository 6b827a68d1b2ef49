/* Template: all units of a type that is summed in float32, a lane for a column. Included with HG_OF (suffix of the names: f32,
 * f16 or i8) and HG_OF_KIND, which it undefines.
 */
#define HG_TAG HG_JOIN(HG_OF, _1)
#define HG_KIND HG_OF_KIND
#define HG_LANES 1
#include "gather_unit.h"

#define HG_TAG HG_JOIN(HG_OF, _2)
#define HG_KIND HG_OF_KIND
#define HG_LANES 2
#include "gather_unit.h"

#if HG_F32_LANES > 4
#define HG_TAG HG_JOIN(HG_OF, _4)
#define HG_KIND HG_OF_KIND
#define HG_LANES 4
#include "gather_unit.h"
#endif

#if HG_F32_LANES > 8
#define HG_TAG HG_JOIN(HG_OF, _8)
#define HG_KIND HG_OF_KIND
#define HG_LANES 8
#include "gather_unit.h"
#endif

#define HG_TAG HG_JOIN(HG_OF, _full)
#define HG_KIND HG_OF_KIND
#define HG_LANES HG_F32_LANES
#include "gather_unit.h"

#undef HG_OF
#undef HG_OF_KIND
