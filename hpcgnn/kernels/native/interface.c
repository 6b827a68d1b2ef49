/* What Python asks of the library itself before it calls anything else: whether both have read the same interface.h. */
#include "hg.h"

#if !defined(HG_SOURCES)
#error "HG_SOURCES: the hash of the sources, which setup.py computes, is to be defined"
#endif

HG_EXPORT const char *hg_sources(void)
{
    return HG_SOURCES;
}
