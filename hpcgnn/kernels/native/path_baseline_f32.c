#define HG_VECTOR_BYTES 16
#define HG_PART "typed.h"
#define HG_PART_BYTES 4
#include "path.h"
