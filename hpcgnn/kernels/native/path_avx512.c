#define HG_VECTOR_BYTES 64
#define HG_PART "common.h"
#include "path.h"
