/* Template: Philox4x32-10 on as many counters at a time as a register holds 64-bit lanes.
 *
 * J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
 *
 * Every 32-bit word lives in a 64-bit lane, because the one instruction that gives both halves of a 32x32 product works
 * that way. The upper half of a lane may hold anything between rounds: the product ignores it.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define HG_COUNTERS (HG_VECTOR_BYTES / 8)

typedef uint64_t hg_u64 __attribute__((vector_size(HG_VECTOR_BYTES)));
typedef uint64_t hg_u64_loose __attribute__((vector_size(HG_VECTOR_BYTES), aligned(4), may_alias));
typedef uint32_t hg_u32_half __attribute__((vector_size(HG_VECTOR_BYTES / 2)));
typedef uint32_t hg_u32_half_loose __attribute__((vector_size(HG_VECTOR_BYTES / 2), aligned(4), may_alias));

HG_INLINE hg_u64 hg_product(hg_u64 a, hg_u64 b)
{
#if defined(__x86_64__) && HG_VECTOR_BYTES == 16
    return (hg_u64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#elif defined(__x86_64__) && HG_VECTOR_BYTES == 32
    return (hg_u64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__x86_64__) && defined(__AVX512F__)
    return (hg_u64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* Four words of the counters in the lanes, replaced by the four random words (upper halves undefined). */
HG_INLINE void hg_ten_rounds(hg_u64 c[4], const hg_round_keys *keys)
{
    const hg_u64 zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    HG_UNROLL
    for (int round = 0; round < 10; round++) {
        hg_u64 p0 = hg_product(c[0], m0), p1 = hg_product(c[2], m1);
        c[0] = (p1 >> 32) ^ c[1] ^ (uint64_t)keys->word[2 * round];
        c[2] = (p0 >> 32) ^ c[3] ^ (uint64_t)keys->word[2 * round + 1];
        c[1] = p1;
        c[3] = p0;
    }
}

/* Lane l holds counter HG_LANE_COUNTERS[l]: in that order, taking the even or the odd lanes of two vectors alternately
 * (one unpack instruction, no crossing of 128-bit lanes) brings each counter's four words together. */
#if HG_COUNTERS == 2
#define HG_LANE_COUNTERS 0, 1
#define HG_EVEN 0, 2
#define HG_ODD 1, 3
#elif HG_COUNTERS == 4
#define HG_LANE_COUNTERS 0, 2, 1, 3
#define HG_EVEN 0, 4, 2, 6
#define HG_ODD 1, 5, 3, 7
#else
#define HG_LANE_COUNTERS 0, 4, 1, 5, 2, 6, 3, 7
#define HG_EVEN 0, 8, 2, 10, 4, 12, 6, 14
#define HG_ODD 1, 9, 3, 11, 5, 13, 7, 15
#endif

#if defined(__clang__) || __GNUC__ >= 12
#define HG_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define HG_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (hg_u64){__VA_ARGS__})
#endif

HG_INLINE void hg_store_words(uint32_t *words, const hg_u64 c[4])
{
    hg_u64 front = (c[0] & 0xffffffffu) | (c[1] << 32), back = (c[2] & 0xffffffffu) | (c[3] << 32);
    *(hg_u64_loose *)words = HG_SHUFFLE(front, back, HG_EVEN);
    *(hg_u64_loose *)(words + 2 * HG_COUNTERS) = HG_SHUFFLE(front, back, HG_ODD);
}

/* Counters first, first + 1, ... of an array, in lane order. */
HG_INLINE hg_u64 hg_load_counters(const uint32_t *first)
{
    hg_u32_half words = *(const hg_u32_half_loose *)first;
    hg_u64 lanes = __builtin_convertvector(words, hg_u64);
    return HG_SHUFFLE(lanes, lanes, HG_LANE_COUNTERS);
}

static void philox_row(const hg_round_keys *keys, int64_t id, uint32_t first_group, int64_t num, uint32_t *words)
{
    const hg_u64 zero = {0}, order = {HG_LANE_COUNTERS};
    for (int64_t i = 0; i < num; i += HG_COUNTERS) {
        hg_u64 c[4] = {order + (uint64_t)(first_group + i), zero + ((uint64_t)id & 0xffffffffu),
                       zero + ((uint64_t)id >> 32), zero};
        hg_ten_rounds(c, keys);
        hg_store_words(words + 4 * i, c);
    }
}

static void philox_blocks(const hg_round_keys *keys, const uint32_t *c0, const uint32_t *c1, const uint32_t *c2,
                          const uint32_t *c3, int64_t num, uint32_t *words)
{
    for (int64_t i = 0; i < num; i += HG_COUNTERS) {
        hg_u64 c[4] = {hg_load_counters(c0 + i), hg_load_counters(c1 + i), hg_load_counters(c2 + i),
                       hg_load_counters(c3 + i)};
        hg_ten_rounds(c, keys);
        hg_store_words(words + 4 * i, c);
    }
}
