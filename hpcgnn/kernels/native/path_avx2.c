#define HG_VECTOR_BYTES 32
#define HG_PART "common.h"
#include "path.h"
