/* What the CPU archive of oneccl-devel takes from Intel's compiler and from its tracing library, so that neither need
 * be there: copies are those of the C library, and tracing is switched off by pointers that are null.
 */
#include <string.h>

void *_intel_fast_memcpy(void *to, const void *from, size_t size) { return memcpy(to, from, size); }
void *_intel_fast_memset(void *to, int value, size_t size) { return memset(to, value, size); }

#define WITHOUT(name) void *__itt_##name##_ptr__3_0
WITHOUT(domain_create);
WITHOUT(event_create);
WITHOUT(event_end);
WITHOUT(event_start);
WITHOUT(metadata_add);
WITHOUT(string_handle_create);
WITHOUT(task_begin);
WITHOUT(task_end);
WITHOUT(thread_set_name);
