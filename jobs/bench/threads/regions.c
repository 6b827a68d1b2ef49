/* Counts parallel regions, and the processor time of the main thread outside of them.
 *
 * Preloaded, this library stands before the OpenMP runtime that torch brings along: every region of torch and of the
 * kernels passes through GOMP_parallel. A region of one thread is serial work and does not count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void region(void (*)(void *), void *, unsigned, unsigned);

static region *begin;
static int64_t regions, inside;
static int depth;

static int64_t processor_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

/* torch's libraries are not in the global scope, so that RTLD_NEXT would not see the runtime. */
static int look(struct dl_phdr_info *info, size_t size, void *result)
{
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libgomp"))
        return 0;
    void *runtime = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    *(void **)result = runtime ? dlsym(runtime, "GOMP_parallel") : NULL;
    return *(void **)result != NULL;
}

void GOMP_parallel(void (*function)(void *), void *data, unsigned num_threads, unsigned flags)
{
    if (!begin)
        dl_iterate_phdr(look, &begin);
    if (num_threads == 1 || depth || getpid() != gettid()) {
        begin(function, data, num_threads, flags);
        return;
    }
    depth++;
    regions++;
    const int64_t before = processor_time();
    begin(function, data, num_threads, flags);
    inside += processor_time() - before;
    depth--;
}

/* Of the main thread, which calls these: regions, nanoseconds in them, nanoseconds in all. */
int64_t threads_regions(void)
{
    return regions;
}

int64_t threads_inside(void)
{
    return inside;
}

int64_t threads_all(void)
{
    return processor_time();
}
