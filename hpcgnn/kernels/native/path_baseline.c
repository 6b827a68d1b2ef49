#define HG_VECTOR_BYTES 16
#define HG_PART "common.h"
#include "path.h"
