/* Writes down the tasks of loops that threads share as they become free: how many, and the processor time of each.
 *
 * Preloaded, this library stands before the OpenMP runtime. A thread's task begins when it has been given one and ends when
 * it asks for the next.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef bool start_loop(long, long, long, long, long *, long *);
typedef bool next_loop(long *, long *);
typedef void end_loop(void);

typedef struct {
    long first, chunk;
    int64_t num, *task;
    int64_t waits;              /* whether all threads wait for each other at its end */
} loop;

#define MOST 4096
static loop loops[MOST];
static int64_t num_loops;
static int recording;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct { loop *in; long at; int64_t since; int64_t entered; } mine;

static int64_t processor_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static int look(struct dl_phdr_info *info, size_t size, void *result)
{
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libgomp"))
        return 0;
    *(void **)result = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    return *(void **)result != NULL;
}

static void *function(const char *name)
{
    void *runtime = NULL;
    dl_iterate_phdr(look, &runtime);
    return dlsym(runtime, name);
}

static void end_task(void)
{
    if (mine.in && mine.at >= 0)
        mine.in->task[(mine.at - mine.in->first) / mine.in->chunk] = processor_time() - mine.since;
}

static void begin_task(bool given, const long *first)
{
    mine.at = given ? *first : -1;
    mine.since = processor_time();
}

bool GOMP_loop_nonmonotonic_dynamic_start(long first, long end, long step, long chunk, long *from, long *to)
{
    static start_loop *begin;
    if (!begin)
        begin = (start_loop *)function("GOMP_loop_nonmonotonic_dynamic_start");
    mine.in = NULL;
    if (recording) {        /* every thread of a team comes to its loops in the same order */
        const int64_t number = mine.entered++;
        pthread_mutex_lock(&lock);
        if (number < MOST && number >= num_loops) {
            const int64_t num = end <= first ? 0 : (end - first + chunk * step - 1) / (chunk * step);
            loops[number] = (loop){first, chunk * step, num, calloc((size_t)num + 1, sizeof(int64_t)), 0};
            num_loops = number + 1;
        }
        pthread_mutex_unlock(&lock);
        mine.in = number < MOST ? &loops[number] : NULL;
    }
    const bool given = begin(first, end, step, chunk, from, to);
    begin_task(given, from);
    return given;
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to)
{
    static next_loop *next;
    if (!next)
        next = (next_loop *)function("GOMP_loop_nonmonotonic_dynamic_next");
    end_task();
    const bool given = next(from, to);
    begin_task(given, from);
    return given;
}

void GOMP_loop_end(void)
{
    static end_loop *end;
    if (!end)
        end = (end_loop *)function("GOMP_loop_end");
    if (mine.in)
        mine.in->waits = 1;
    end();
}

void GOMP_barrier(void)
{
    static end_loop *wait;
    if (!wait)
        wait = (end_loop *)function("GOMP_barrier");
    if (mine.in)
        mine.in->waits = 1;
    wait();
}

/* What follows is asked of by the main thread, outside of regions. The threads of a team live on, so that each counts the
 * loops that it has entered from the beginning on. */
void threads_begin(void)
{
    recording = 1;
}

int64_t threads_loops(void)
{
    return num_loops;
}

int64_t threads_tasks(int64_t number)
{
    return loops[number].num;
}

int64_t threads_waits(int64_t number)
{
    return loops[number].waits;
}

int64_t threads_task(int64_t number, int64_t task)
{
    return loops[number].task[task];
}
