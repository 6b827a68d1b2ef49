/* Calls functions of a kernel library on behalf of another process, whose memory they work on. For emulated.py: this program
 * runs under qemu-user, for a processor that the machine does not have, and the tests run beside it in a Python of the
 * machine.
 *
 *     emulated LIBRARY.so FD        requests come from the standard input, replies go to the standard output
 *
 * FD is the other process's /proc/self/mem. An address of that process stands in arguments with bit ADDRESS_BIT turned over,
 * so that it cannot fall on this program's own memory. The first access to such an address faults; the handler then copies
 * what lies around it, and the access is made again. After a call, what it has changed is written back. An access to what the
 * other process does not have ends this program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ADDRESS_BIT ((uintptr_t)1 << 46)
#define PAGE 4096
#define PAGES 16                /* that are copied at a time */
#define CLUSTER ((uintptr_t)PAGE * PAGES)
#define CLUSTERS 65536
#define INTEGERS 28
#define REALS 8

enum { WHOLE = 0, REAL = 1, TEXT = 2 };

typedef struct {
    char name[64];
    int64_t result;             /* WHOLE, REAL or TEXT */
    int64_t integers[INTEGERS]; /* pointers are among them */
    double reals[REALS];
} request;

typedef struct {
    int64_t whole;
    double real;
    char text[64];
} reply;

/* Integers and pointers go to x0 to x7 and then to the stack, eight bytes each; doubles, of which there are no more than
 * eight, to d0 to d7. So every function of the interface finds its arguments where this type puts them. */
#define ARGUMENTS(W, D) W, W, W, W, W, W, W, W, D, D, D, D, D, D, D, D, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W
typedef int64_t whole_function(ARGUMENTS(int64_t, double));
typedef double real_function(ARGUMENTS(int64_t, double));

typedef struct {
    uintptr_t at;               /* here */
    unsigned char *copy;        /* as it was fetched */
    uint32_t present;           /* a bit for each page that the other process has */
} cluster;

static cluster clusters[CLUSTERS];
static int num_clusters, memory;
static char lock;

/* In place of the C library's, for the library too (this program exports it): that clears whole cache lines with DC ZVA, and
 * qemu 7.2 does not go on rightly after a fault in one. */
void *memset(void *to, int byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        ((unsigned char *)to)[i] = (unsigned char)byte;
        __asm__ volatile("" : : : "memory");    /* or the compiler would make a call of memset of it */
    }
    return to;
}

static void end(const char *what)
{
    (void)!write(2, what, strlen(what));
    signal(SIGABRT, SIG_DFL);
    abort();
}

/* Copies the cluster at this address; only then it appears, whole, where other threads can see it. */
static void fetch(uintptr_t at)
{
    const int access = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *copy = mmap(NULL, 2 * CLUSTER, access, anonymous, -1, 0);
    if (copy == MAP_FAILED || num_clusters == CLUSTERS)
        end("emulated: no memory\n");
    uint32_t present = 0;
    for (int page = 0; page < PAGES; page++)
        if (pread(memory, copy + page * PAGE, PAGE, (off_t)((at ^ ADDRESS_BIT) + (uintptr_t)page * PAGE)) == PAGE)
            present |= 1u << page;
    unsigned char *moving = copy + CLUSTER;
    memcpy(moving, copy, CLUSTER);
    for (int page = 0; page < PAGES; page++)
        if (!(present >> page & 1))
            mprotect(moving + page * PAGE, PAGE, PROT_NONE);
    for (int page = 0; page < PAGES; page++)
        if (mremap(moving + page * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(at + (uintptr_t)page * PAGE))
            == MAP_FAILED)
            end("emulated: the other process's addresses are taken here\n");
    clusters[num_clusters++] = (cluster){at, copy, present};
}

static void fault(int number, siginfo_t *information, void *context)
{
    (void)number, (void)context;
    const int error = errno;
    const uintptr_t address = (uintptr_t)information->si_addr, at = address / CLUSTER * CLUSTER;
    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
        sched_yield();
    int i = num_clusters;
    while (i-- && clusters[i].at != at)
        ;
    if (i < 0) {
        fetch(at);
        i = num_clusters - 1;
    }
    const int present = clusters[i].present >> (address - at) / PAGE & 1;
    __atomic_clear(&lock, __ATOMIC_RELEASE);
    if (!present)
        end("emulated: an access to memory that the caller does not have\n");
    errno = error;
}

/* Writes back the words that have changed, and no others: what lies beside them may have been changed by its owner. */
static void write_back(const cluster *from)
{
    const int64_t words = PAGE / 8;
    for (int page = 0; page < PAGES; page++) {
        if (!(from->present >> page & 1))
            continue;
        const uintptr_t at = from->at + (uintptr_t)page * PAGE;
        const uint64_t *now = (const uint64_t *)at, *before = (const uint64_t *)(from->copy + page * PAGE);
        for (int64_t first = 0, last; first < words; first = last + 1) {
            while (first < words && now[first] == before[first])
                first++;
            for (last = first; last < words && now[last] != before[last];)
                last++;
            const size_t bytes = (size_t)(last - first) * 8;
            if (bytes && pwrite(memory, now + first, bytes, (off_t)((at ^ ADDRESS_BIT) + (uintptr_t)first * 8)) != (ssize_t)bytes)
                end("emulated: what a kernel has written cannot be written there\n");
        }
    }
}

static void settle(void)
{
    for (int i = 0; i < num_clusters; i++) {
        write_back(&clusters[i]);
        munmap((void *)clusters[i].at, CLUSTER);
        munmap(clusters[i].copy, CLUSTER);
    }
    num_clusters = 0;
}

static reply answer(void *function, const request *r)
{
    const int64_t *w = r->integers;
    const double *d = r->reals;
#define PASSED                                                                                                              \
    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], w[8], w[9], w[10],      \
        w[11], w[12], w[13], w[14], w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23], w[24], w[25], w[26], w[27]
    reply found = {0};
    if (r->result == REAL)
        found.real = ((real_function *)function)(PASSED);
    else
        found.whole = ((whole_function *)function)(PASSED);
    if (r->result == TEXT)
        strncpy(found.text, (const char *)found.whole, sizeof found.text - 1);
    return found;
}

int main(int argc, char **argv)
{
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "emulated: expected a library and a file descriptor, got %s\n", argc == 3 ? dlerror() : "others");
        return 2;
    }
    memory = atoi(argv[2]);
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    request r;
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        void *function = dlsym(library, r.name);
        reply found = {.whole = -1};
        if (function)
            found = answer(function, &r);
        else
            strcpy(found.text, "no such function");
        settle();
        if (fwrite(&found, sizeof found, 1, stdout) != 1 || fflush(stdout))
            return 1;
    }
    return 0;
}
