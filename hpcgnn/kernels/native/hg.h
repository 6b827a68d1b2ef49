/* What the layers of the kernel library share:
 *
 *   exported functions (interface.h; gather.c, scores.c, …)   OpenMP, scheduling, no vector code
 *   one table per vector path (table.h; path_*.c)             vector code, serial, no OpenMP
 *   templates (path.h; gather_*.h, extreme.h, philox.h, …)    written once, compiled for each path
 *
 * All sizes and strides count elements, not bytes. Nothing here keeps state between calls, but for memory to work in.
 */
#ifndef HG_H
#define HG_H

#include <stdint.h>
#include <stdlib.h>

#include "interface.h"

/* How many element types are gathered. The first of them are those of results, and of these the first are computed with. */
#define HG_GATHERED 5
#define HG_TYPES 3
#define HG_COMPUTED 2

/* Bytes of an element. */
static inline int64_t hg_size_of(int type)
{
    return type == HG_F64 ? 8 : type == HG_F32 ? 4 : type == HG_I8 ? 1 : 2;
}

#define HG_ROW_COST 4           /* a row's own work (its pointer, its store), in edges */
#define HG_WAVE_CHUNKS 256      /* hub chunks of attention whose results are held at once */

/* Elements below which waking other threads costs more than they save, where each needs little work. */
#define HG_SMALL (1 << 14)

/* Into how many shares of HG_SUMMED_ROWS rows are cut. */
static inline int64_t hg_shares_of(int64_t rows)
{
    return (rows + HG_SUMMED_ROWS - 1) / HG_SUMMED_ROWS;
}

/* A row with more edges than this is a hub: its sum is the ordered sum of the sums of chunks of this many edges,
 * so that several threads can share it. Being a property of the row alone, it keeps results independent of the
 * number of threads. At width 256 a chunk is 8 MiB of reads, well under a millisecond. */
#define HG_HUB_EDGES 8192

/* Ten round keys of Philox4x32-10, word 0 and word 1 alternating. */
typedef struct { uint32_t word[20]; } hg_round_keys;

/* A threshold and a scale of dropout: keep where word >= threshold, multiply by scale. relu: drop what is 0 or less, too. */
typedef struct { uint32_t threshold; double scale; int relu; } hg_dropout_rule;

/* Columns whose levels are made at a time. */
#define HG_LEVELS 512

/* Columns of a block of codes, which share a step. */
#define HG_CODED 256

/* A vector path's kernels (table.h). */
typedef struct hg_kernels hg_kernels;

/* What decides which elements of a row dropout keeps. */
typedef struct {
    const hg_kernels *table;
    hg_round_keys keys;
    hg_dropout_rule rule;
} hg_mask;

hg_round_keys hg_round_keys_of(uint64_t key);

hg_mask hg_mask_of(int path, uint64_t key, uint32_t threshold, double scale);

/* Dropout of rows x (num, width) in place, by one thread; they are the columns from `column` on, a multiple of 4. part: as of
 * hg_dropout. */
void hg_mask_rows(const hg_mask *mask, int type, void *x, int64_t stride, const int64_t *ids, const void *part, int64_t num,
                  int64_t column, int64_t width);

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

/* gather by parts, for who does more to the rows: memory for the sums of hubs' chunks, NULL if there can be no hub (returns 0,
 * or -1: no memory); these sums, made by every thread of a parallel region, which wait at the end; then rows [first, last), or
 * `num` rows from row `first` on by every thread, of which none waits. */
int hg_hub_sums(const hg_gather_args *a, hg_memory *kept, char **sums);
void hg_sum_hubs(int path, const hg_gather_args *a, char *sums);
void hg_gather_rows(int path, const hg_gather_args *a, char *sums, int64_t first, int64_t last);
void hg_share_rows(int path, int num_threads, const hg_gather_args *a, char *sums, int64_t first, int64_t num);

/* The place of a block's edge among those that have features. */
static inline int64_t hg_place(const void *places, int bytes, int64_t e)
{
    return bytes == 8 ? ((const int64_t *)places)[e] : ((const int32_t *)places)[e];
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
    /* Row i starts at a cost of row_cost * i or more. So a small task's end is near, and its search stays in the cache. */
    int64_t low = 0, high = row_cost ? hg_least(num, target / row_cost + 1) : num;
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
