/* The interface between the three layers of the kernel library:
 *
 *   exported functions (gather.c, extreme.c, rowwise.c, check.c, …)  OpenMP, scheduling, no vector code
 *   one hg_kernels table per vector path (path_*.c)                 vector code, serial, no OpenMP
 *   templates (gather_*.h, extreme.h, philox.h, …)                  written once, compiled for each path
 *
 * All sizes and strides count elements, not bytes. Nothing here keeps state between calls, but for memory to work in.
 */
#ifndef HG_H
#define HG_H

#include <stdint.h>
#include <stdlib.h>

#include "interface.h"

/* How many element types there are, and of them those that are computed with: they come first. */
#define HG_TYPES 3
#define HG_COMPUTED 2

/* Bytes of an element. */
static inline int64_t hg_size_of(int type)
{
    return type == HG_F64 ? 8 : type == HG_F32 ? 4 : 2;
}

/* Elements below which waking other threads costs more than they save, where each needs little work. */
#define HG_SMALL (1 << 14)

/* A row with more edges than this is a hub: its sum is the ordered sum of the sums of chunks of this many edges,
 * so that several threads can share it. Being a property of the row alone, it keeps results independent of the
 * number of threads. At width 256 a chunk is 8 MiB of reads, well under a millisecond. */
#define HG_HUB_EDGES 8192

typedef struct {
    /* Rows [first, last) of the block, hubs left out. */
    void (*rows)(const hg_gather_args *a, int64_t first, int64_t last);
    /* Sum of the edges [first, last) into partial[width], of the accumulation type. */
    void (*chunk)(const hg_gather_args *a, int64_t first, int64_t last, void *partial);
    /* Row i of the block from its chunks' sums, partial[num_chunks][width], added in order (partial is overwritten). */
    void (*finish)(const hg_gather_args *a, int64_t i, void *partial, int64_t num_chunks);
} hg_gather_kernels;

/* Ten round keys of Philox4x32-10, word 0 and word 1 alternating. */
typedef struct { uint32_t word[20]; } hg_round_keys;

/* A threshold and a scale of dropout: keep where word >= threshold, multiply by scale. */
typedef struct { uint32_t threshold; double scale; } hg_dropout_rule;

typedef struct {
    hg_gather_kernels gather[HG_TYPES];
    /* Rows [first, last) of the block; see kernels/extreme.py. HG_F32 and HG_F64. */
    void (*largest[2])(const hg_extreme_args *a, int64_t first, int64_t last);
    void (*matching[2])(const hg_extreme_args *a, int64_t first, int64_t last);
    /* out[c] = scale * x[c] for one row; [x type][out type], NULL where there is no such conversion. */
    void (*copy_row[HG_TYPES][HG_TYPES])(void *out, const void *x, int64_t width, double scale);
    /* Philox of num counters held as four arrays; words[4 * i + k] is word k of counter i. The arrays must be
     * readable, and words writable, up to the next multiple of 8 counters. */
    void (*philox_blocks)(const hg_round_keys *keys, const uint32_t *c0, const uint32_t *c1, const uint32_t *c2,
                          const uint32_t *c3, int64_t num, uint32_t *words);
    /* Philox of the counters (first_group + i, id low, id high, 0), i < num; writes as philox_blocks does. */
    void (*philox_row)(const hg_round_keys *keys, int64_t id, uint32_t first_group, int64_t num, uint32_t *words);
    /* out[c] = words[c] >= threshold ? scale * x[c] : 0; out may be x. */
    void (*drop[HG_TYPES])(void *out, const void *x, const uint32_t *words, int64_t num, const hg_dropout_rule *rule);
    /* out[c] = y[c] <= 0 ? 0 : scale * gradient[c], which may be one of them; gradient is of the accumulation type. */
    void (*relu_gradient[HG_TYPES])(void *out, const void *gradient, const void *y, int64_t width, double scale);
    /* Sums num edges' whole rows into registers: the reading of gather with nothing else. */
    float (*probe)(const void *x, int64_t row_bytes, int64_t stride_bytes, const int32_t *indices, int64_t num,
                   int64_t readable);
} hg_kernels;

extern const hg_kernels hg_kernels_baseline;
#if defined(__x86_64__)
extern const hg_kernels hg_kernels_avx2;
extern const hg_kernels hg_kernels_avx512;
#endif

/* The table of a vector path. */
const hg_kernels *hg_table(int path);

/* What decides which elements of a row dropout keeps. */
typedef struct {
    const hg_kernels *table;
    hg_round_keys keys;
    hg_dropout_rule rule;
} hg_mask;

hg_round_keys hg_round_keys_of(uint64_t key);

hg_mask hg_mask_of(int path, uint64_t key, uint32_t threshold, double scale);

/* Dropout of rows x (num, width) in place, by one thread. */
void hg_mask_rows(const hg_mask *mask, int type, void *x, int64_t stride, const int64_t *ids, int64_t num, int64_t width);

/* Memory that a function keeps from call to call, one for each thread that calls it (_Thread_local): of a large size malloc
 * would take fresh pages from the system every time, and a layer makes a call for each tile of rows. */
typedef struct { void *at; int64_t bytes; } hg_memory;

/* At least so many bytes of it, at a cache line; what it held is lost when it grows. NULL: there is no memory. */
static inline void *hg_kept(hg_memory *memory, int64_t bytes)
{
    if (bytes > memory->bytes) {
        free(memory->at);
        memory->at = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
        memory->bytes = memory->at ? bytes : 0;
    }
    return memory->at;
}

static inline int64_t hg_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Asks for a row that is needed next. The rows that a block of few edges per row stores are far apart, where the
 * hardware's prefetch does not find the next one. (Gathering narrow rows gains nothing by it.) */
static inline void hg_prefetch_row(const void *row, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += 64)
        __builtin_prefetch((const char *)row + b);
    __builtin_prefetch((const char *)row + bytes - 1);          /* it may not start on a cache line */
}

/* First i in [0, num] with indptr[i] - indptr[0] + row_cost * i >= target: where a share of the work starts. */
static inline int64_t hg_row_of_cost(const int64_t *indptr, int64_t num, int64_t row_cost, int64_t target)
{
    int64_t low = 0, high = num;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (indptr[middle] - indptr[0] + row_cost * middle < target)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
