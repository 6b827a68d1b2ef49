/* All that Python sees of this library: constants, structures of arguments, and functions.
 *
 * hpcgnn/kernels/interface.py reads this file, so that nothing of it is written a second time. It understands no more of C
 * than is used here: definitions of whole numbers, enumerations with every value given, structures of one field a line,
 * prototypes, pointers and the types of a few names. All sizes and strides count elements, not bytes, unless they say so.
 */
#ifndef HG_INTERFACE_H
#define HG_INTERFACE_H

#include <stdint.h>

#define HG_EXPORT __attribute__((visibility("default")))

/* Element types. */
enum { HG_F32 = 0, HG_F64 = 1, HG_BF16 = 2, HG_F16 = 3, HG_I8 = 4 };

/* Vector paths, the narrowest first. */
enum { HG_BASELINE = 0, HG_AVX2 = 1, HG_AVX512 = 2 };

/* Scores of attention: halves that are made before, GATv2's of sums of rows, or products of rows. */
enum { HG_SCORE_HALVES = 0, HG_SCORE_SUM = 1, HG_SCORE_PRODUCT = 2, HG_SCORE_MIXED = 3, HG_SCORE_RELATED = 5 };

/* What the stored rows of a block are of its edges; either, where an edge and its reverse are one edge. */
enum { HG_ROWS_ARE_DESTINATIONS = 0, HG_ROWS_ARE_SOURCES = 1, HG_ROWS_ARE_EITHER = 2 };

/* Rows whose column sums or losses are made by one thread, in order, whatever the number of threads. The caller has memory
 * for the sums of so many rows each. */
#define HG_SUMMED_ROWS 512

/* So many of them at a time, where sums are made in double precision. */
#define HG_SUMMED_SHARES 256

/* A block of the adjacency, and the rows that gather reads and writes. */
typedef struct {
    const void *x;              /* sources, (num_sources, width) */
    void *y;                    /* results, (num_rows_of_y, width) */
    const int64_t *indptr;      /* (num_rows + 1), may start above 0 */
    const int32_t *indices;     /* (at least indptr[num_rows]) */
    const int32_t *rows;        /* (num_rows) or NULL: stored row i is row i of y */
    const void *weight;         /* per edge, or NULL; this and the scales have the accumulation type */
    const void *source_scale;   /* per source, or NULL */
    const void *row_scale;      /* per row of y, or NULL */
    int64_t num_rows;
    int64_t width;
    int64_t x_stride;
    int64_t y_stride;
    int32_t x_type;
    int32_t y_type;             /* equal to x_type, or HG_F32 for sources of 16 or 8 bits */
    int32_t accumulate;
} hg_gather_args;

/* A block, and the rows of the largest-of-neighbours functions. */
typedef struct {
    const void *x;              /* sources, (num_sources, width) */
    void *gx;                   /* their gradients, of x's shape */
    void *y;                    /* the largest so far, (num_rows_of_y, width) */
    void *count;                /* how many sources have it, of y's shape */
    const void *gy;             /* of y's shape; of each element, what a source that has it gets */
    const int64_t *indptr;      /* as in hg_gather_args */
    const int32_t *indices;
    const int32_t *rows;
    int64_t num_rows;
    int64_t width;              /* of y */
    int64_t x_stride;
    int64_t gx_stride;
    int64_t y_stride;
    int64_t count_stride;
    int64_t gy_stride;
    int32_t type;               /* HG_F32 or HG_F64, of everything */
} hg_extreme_args;

/* A block, and the rows of attention. Both directions walk the edges of the stored rows and read one streamed row per edge.
 * What the rows hold differs:
 *
 *                forward                               backward
 *   stored row   a destination                         an own node as a source
 *   streamed     [z | a_src] of the sources            [gy | a_dst, lse, D] of the destinations (see attention.py)
 *   own          a_dst                                 [z | a_src]
 *   sums         y                                     gz
 *
 * Of a complete block nothing but ga_dst need be cleared before, and gz and ga_src may stand exactly where [z | a_src]
 * does.
 *
 * With HG_SCORE_SUM or HG_SCORE_PRODUCT the scores are made of whole rows (score_rows.h): `own` is (n, F), streamed (columns,
 * F), or (columns, 2 F) of products, whose values stand behind. Backwards (scores.c) rows are destinations too: sums is the
 * gradient of `own`, ga_dst that of streamed or NULL; maximum and denominator are the final maximum and the inverse of the
 * final denominator.
 *
 * With `weight` the data of edges take part (attention_edges.h): to the sources' rows, values included where they stand
 * behind, e W is added. With HG_SCORE_MIXED the rows of own and streamed are those of B bases, own (n, B H), streamed (columns,
 * B F + B H), and an edge has the row of `weight` of its type to mix them; then scores are as with HG_SCORE_HALVES.
 *
 * HG_SCORE_RELATED has no scores, and one direction: sums (n, B F) of streamed rows (columns, F), for each of B bases, with the
 * product of an edge's factor and its type's entry of `weight`. own, which is read for g_weight, is as wide. */
typedef struct {
    const int64_t *indptr;      /* (num_rows + 1), may start above 0 */
    const int32_t *indices;
    const int32_t *rows;        /* (num_rows) or NULL: stored row i is row i of the own arrays */
    const int32_t *returns;     /* backwards: (edges), rows of ga_dst, or NULL: those are the columns */
    const void *streamed;       /* (columns, F + H) forwards, (columns, G + 3 H) backwards */
    const void *own;            /* (n, H) forwards, (n, F + H) backwards */
    void *sums;                 /* (n, F) */
    void *maximum;              /* forwards: (n, H) */
    void *denominator;          /* forwards: (n, H) */
    void *ga_src;               /* backwards: (n, H) */
    void *ga_dst;               /* backwards: (columns, H), or as many rows as `returns` names */
    const void *edge_term;      /* (edges, H) or NULL; nobody gives it, but without its loop gcc rounds scores otherwise */
    const void *factors;        /* of HG_SCORE_RELATED: (all edges) */
    const int64_t *row_ids;     /* (n), NULL without dropout */
    const int64_t *column_ids;  /* (columns), NULL without dropout */
    const void *bias;           /* (F) or NULL: forwards, complete, added at the end; backwards what was added */
    const void *attention;      /* of HG_SCORE_SUM: (F) */
    const void *gy;             /* of whole rows, backwards: (n, F) */
    const void *y;              /* the same */
    void *g_attention;          /* of HG_SCORE_SUM, backwards: (F), added to */
    const void *edge;           /* with weight: (all edges, weight_rows), or of mixed, related int32 (all edges): types */
    const void *places;         /* with weight: per edge, its row there */
    const void *weight;         /* (weight_rows, F), or of mixed, related (types, B); contiguous, or NULL */
    void *g_weight;             /* backwards: as weight, added to, or NULL */
    int64_t num_rows;
    int64_t heads;
    int64_t head_width;
    int64_t gy_stride;
    int64_t y_stride;
    int64_t streamed_stride;
    int64_t own_stride;
    int64_t sums_stride;
    int64_t maximum_stride;
    int64_t denominator_stride;
    int64_t ga_src_stride;
    int64_t ga_dst_stride;
    int64_t edge_term_stride;
    int64_t edge_stride;
    int64_t weight_rows;
    int64_t weight_columns;
    double slope;
    double scale;               /* of what dropout keeps */
    uint64_t key;
    uint32_t threshold;
    int32_t shared;             /* backwards: G is the width of one head, not F */
    int32_t complete;           /* all edges of all rows are here, so that a row is begun and ended at once */
    int32_t type;               /* HG_F32 or HG_F64 */
    int32_t score;              /* HG_SCORE_... */
    int32_t place_bytes;        /* of a number in places: 4 or 8 */
} hg_attention_args;

/* A block, and what edge dropout leaves of it. */
typedef struct {
    const int64_t *indptr;      /* as in hg_gather_args */
    const int32_t *indices;
    const int32_t *rows;
    const void *weight;         /* per edge, or NULL */
    const void *edge;           /* per edge, or NULL: numbers that are copied */
    const int64_t *row_ids;     /* (num_rows_of_all) */
    const int64_t *column_ids;  /* (num_sources) */
    int64_t *kept_indptr;       /* (num_rows + 1), starts at 0 */
    int32_t *kept_indices;      /* (capacity), NULL: nothing is copied; so are the next two */
    void *kept_weight;
    void *kept_edge;
    double *degree;             /* (num_rows_of_all): the weights of kept edges, or ones, are added to it */
    int64_t num_rows;
    int64_t capacity;
    uint64_t key;
    uint32_t threshold;         /* an edge whose word is smaller is dropped */
    int32_t ends;               /* HG_ROWS_ARE_... */
    int32_t weight_bytes;       /* of a number: 4 or 8 */
    int32_t edge_bytes;
} hg_edge_dropout_args;

/* A layer's product of its rows with its weights, with what the rows pass through before. */
typedef struct {
    const void *x;              /* (rows, depth), of x_type: HG_F32, or without ELU narrower */
    const float *weight;        /* (depth, width) */
    void *y;                    /* (rows, width), of y_type: the product, rounded once; backwards its gradient, which is only read */
    float *gx;                  /* backwards: (rows, depth), may be x, or NULL; without ELU added to if `add` */
    float *g_weight;            /* backwards: (depth, width), contiguous, added to */
    float *dots;                /* backwards, with ELU: (rows, heads) or NULL; this, bias, sums, scaled as of hg_elu_gradient */
    const float *bias;          /* (depth) or NULL */
    float *sums;                /* (depth) or NULL, added to */
    float *y_sums;              /* (width) or NULL: forwards added to y; backwards the columns' sums of y are added to it */
    const int64_t *ids;         /* (rows), NULL without dropout */
    const float *part;          /* (rows) or NULL: as of hg_dropout, without ELU */
    int64_t rows;
    int64_t depth;
    int64_t width;
    int64_t heads;
    int64_t x_stride;
    int64_t y_stride;
    int64_t gx_stride;
    int64_t dots_stride;
    int64_t weight_down;        /* element (k, c) of weight stands at k * weight_down + c * weight_across */
    int64_t weight_across;
    double scale;               /* of what dropout keeps */
    uint64_t key;
    uint32_t threshold;
    int32_t elu;                /* whether rows pass through ELU, and then dropout, before they are multiplied */
    int32_t add;
    int32_t scaled;
    int32_t x_type;
    int32_t y_type;
    const void *beside;         /* forwards: hg_projection_args of another product of x and y as these, which is added, or NULL */
} hg_projection_args;

/* A chain of square maps with an activation before each; before it z + more + x own, behind it layer norm, and x is added.
 * Backwards z, more and x are read again. */
typedef struct {
    const float *z;             /* (nodes, width), of which row z_index[i] is that of row i; NULL: row i */
    const int32_t *z_index;
    const float *more;          /* (others, width) or NULL; likewise */
    const int32_t *more_index;
    const float *x;             /* (rows, width) or NULL; so is the next, but for its size */
    const float *own;           /* (width, width) */
    const float *scale;         /* (width): of layer norm, or NULL; so is the next */
    const float *shift;         /* forwards: (width) */
    const float *weights;       /* (maps * width, width) */
    const float *biases;        /* (maps * width) */
    float *y;                   /* forwards: (rows, width) */
    const float *gy;            /* backwards: (targets, width), with gy_index as z */
    const int32_t *gy_index;
    float *gz;                  /* backwards: (rows, width) */
    float *g_weights;           /* backwards: as weights, added to; so is the next */
    float *g_biases;
    float *gx;                  /* backwards, with x; so is the next */
    float *g_own;
    float *g_norm;              /* backwards, with scale: (2, width), of scale and of shift, added to */
    int64_t rows;
    int64_t width;              /* a multiple of HG_PANEL, 16 */
    int64_t maps;
    int64_t z_stride;
    int64_t more_stride;
    int64_t x_stride;
    int64_t gx_stride;
    int64_t y_stride;
    int64_t gy_stride;
    int64_t gz_stride;
    double epsilon;             /* of layer norm */
    int32_t elu;                /* ELU, else ReLU */
} hg_chain_args;

/* A convolution of a layer, of consecutive rows: y = aggregate W_n + x W_s + bias (ops/convolve.py). Rows of x and y are of
 * HG_F32 or HG_BF16, all else is float32. */
typedef struct {
    const hg_gather_args *gather;       /* of all rows, but for y; NULL: the aggregate is `sums` */
    const float *sums;                  /* (rows, streamed), may be y; else NULL */
    float *memory;                      /* backwards, with gather: (tile, streamed) */
    const void *x;                      /* (rows, depth); forwards with outputs: all of x */
    void *y;                            /* (rows, width); backwards its gradient, all of it, which is only read */
    const float *neighbour;             /* (depth, width); forwards NULL: the aggregate, if any, is of x W_n */
    const float *own;                   /* (depth, width) or NULL */
    const float *bias;                  /* forwards: (width) or NULL */
    const int32_t *outputs;             /* rows of x that are computed, or NULL: all; forwards those of `rows` */
    float *taken;                       /* backwards, with outputs: (tile, depth) */
    float *apart;                       /* backwards, with outputs and gx: (tile, depth) */
    float *spare;                       /* backwards: (tile, depth), with relu, and for gx of HG_BF16; else NULL */
    void *gx;                           /* backwards: (rows, depth), of the type of x, or NULL */
    float *g_neighbour;                 /* backwards: (depth, width), added to; so are the next two */
    float *g_own;                       /* (depth, width), NULL where own is */
    float *g_bias;                      /* (width) or NULL, with g_own */
    int64_t rows;
    int64_t first;                      /* backwards: the number of the first row */
    int64_t num_outputs;
    int64_t tile;                       /* backwards: rows that are worked on at a time */
    int64_t streamed;                   /* columns of the aggregate, 0: there is none */
    int64_t depth;
    int64_t width;
    int64_t sums_stride;
    int64_t x_stride;
    int64_t y_stride;
    int64_t gx_stride;
    int64_t neighbour_down;             /* element (k, c) of W_n stands at k * neighbour_down + c * neighbour_across */
    int64_t neighbour_across;
    int64_t own_down;
    int64_t own_across;
    double scale;                       /* of relu_gradient */
    int32_t relu;                       /* backwards: whether gx, which is x, is the gradient before ReLU and dropout */
    int32_t x_type;
    int32_t y_type;
} hg_convolution_args;

/* The hash of the sources that this library was built from (see hpcgnn/kernels/sources.py). */
HG_EXPORT const char *hg_sources(void);

/* 1 if the processor (and the operating system) can run the path, else 0. */
HG_EXPORT int hg_supports(int path);
/* 1 if this processor can multiply matrices of float32, 2 if it should, because the library that torch brings along is slower. */
HG_EXPORT int hg_multiplies(void);

/* gather.c */
HG_EXPORT int hg_gather(int path, int num_threads, const hg_gather_args *a);
HG_EXPORT void hg_gather_largest(int path, int num_threads, const hg_extreme_args *a);
HG_EXPORT void hg_largest_gradient(int path, int num_threads, const hg_extreme_args *a);
HG_EXPORT void hg_edge_rows(int num_threads, int32_t *out, const int64_t *indptr, const int32_t *rows, int64_t num_rows);

/* edge_dropout.c */
HG_EXPORT int64_t hg_drop_edges(int path, int num_threads, const hg_edge_dropout_args *a);

/* narrow.c */
HG_EXPORT void hg_narrow(int path, int num_threads, int type, uint64_t key, void *out, int64_t out_stride,
                         void *factors, int64_t factors_stride, const void *x, int64_t x_stride, const int64_t *ids,
                         int64_t num, int64_t width);
HG_EXPORT void hg_widen(int path, int num_threads, int type, void *out, int64_t out_stride, const void *narrow,
                        int64_t narrow_stride, const void *factors, int64_t factors_stride, int64_t num, int64_t width);

/* narrow.c; steps: (num, blocks of HG_CODED columns) */
HG_EXPORT void hg_encode(int path, int num_threads, int type, uint64_t key, void *codes, int64_t codes_stride, float *steps,
                         const void *x, int64_t x_stride, const int64_t *ids, int64_t num, int64_t width);
HG_EXPORT void hg_decode(int path, int num_threads, int type, void *out, int64_t out_stride, const void *codes,
                         int64_t codes_stride, const float *steps, int64_t num, int64_t width);

/* rowwise.c */
HG_EXPORT void hg_pack(int path, int num_threads, void *out, int64_t out_stride, int out_type, const void *x,
                       int64_t x_stride, int x_type, const int32_t *index, int64_t num, int64_t width,
                       const void *scale);
HG_EXPORT void hg_add_rows(int path, int num_threads, int type, void *out, int64_t out_stride, const int32_t *index,
                           const void *x, int64_t x_stride, const int32_t *place, const void *weight, int64_t num,
                           int64_t width, int distinct);
HG_EXPORT void hg_random_words(int path, int num_threads, uint64_t key, const int64_t *ids, int64_t num,
                               int64_t columns, int64_t *words);
HG_EXPORT void hg_dropout(int path, int num_threads, uint64_t key, uint32_t threshold, double scale, int type,
                          void *out, int64_t out_stride, const void *x, int64_t x_stride, int x_type,
                          const int32_t *index, const void *part, const int64_t *ids, int64_t num, int64_t width,
                          int relu);
HG_EXPORT void hg_dropout_entries(int path, int num_threads, uint64_t key, uint32_t threshold, double scale, int type,
                                  void *out, const void *data, const int64_t *indptr, const int64_t *ids,
                                  const int32_t *columns, int64_t num_rows);

/* between.c */
HG_EXPORT void hg_elu(int path, int num_threads, int type, void *out, int64_t out_stride, const void *x,
                      int64_t x_stride, int64_t rows, int64_t width);
HG_EXPORT void hg_elu_gradient(int path, int num_threads, int type, void *out, int64_t out_stride, const void *gy,
                               int64_t gy_stride, const void *y, int64_t y_stride, const void *x, int64_t x_stride,
                               void *dots, int64_t dots_stride, const void *bias, void *sums, void *partial,
                               int64_t rows, int64_t heads, int64_t head_width, int scaled);
HG_EXPORT void hg_relu_gradient(int path, int num_threads, int type, void *out, int64_t out_stride,
                                const void *gradient, int64_t gradient_stride, const void *y, int64_t y_stride,
                                int64_t rows, int64_t width, double scale);
HG_EXPORT void hg_normalise(int path, int num_threads, int type, void *y, int64_t y_stride, const void *denominator,
                            int64_t denominator_stride, const void *bias, const void *maximum, int64_t maximum_stride,
                            void *top, int64_t top_stride, void *share, int64_t share_stride, int64_t rows, int64_t heads,
                            int64_t head_width);
HG_EXPORT void hg_bias_gradient(int path, int num_threads, int type, void *sums, const void *gy, int64_t gy_stride,
                                void *partial, int64_t rows, int64_t width);

/* norm.c; vectors are of the accumulation type, and partial is memory for the sums of a span of rows */
HG_EXPORT void hg_column_moments(int path, int num_threads, int type, double *sums, const void *x, int64_t x_stride,
                                 double *partial, int64_t rows, int64_t width);
HG_EXPORT void hg_norm_gradient_sums(int path, int num_threads, int type, double *sums, const void *gy,
                                     int64_t gy_stride, const void *x, int64_t x_stride, const void *mean,
                                     const void *inverse, double *partial, int64_t rows, int64_t width);
HG_EXPORT void hg_norm_columns(int path, int num_threads, int type, void *y, int64_t y_stride, const void *x,
                               int64_t x_stride, const void *mean, const void *inverse, const void *weight,
                               const void *bias, const int64_t *ids, uint64_t key, uint32_t threshold, double scale,
                               int64_t rows, int64_t width, int relu);
HG_EXPORT void hg_norm_columns_gradient(int path, int num_threads, int type, void *gx, int64_t gx_stride,
                                        const void *gy, int64_t gy_stride, const void *x, int64_t x_stride,
                                        const void *mean, const void *inverse, const void *mean_gy,
                                        const void *mean_product, const void *factor, int64_t rows, int64_t width);

/* loss.c */
HG_EXPORT int64_t hg_cross_entropy(int path, int num_threads, int type, double *total, void *gradient,
                                   int64_t gradient_stride, const void *x, int64_t x_stride, const int64_t *rows,
                                   const int64_t *labels, double *partial, int64_t num, int64_t num_rows,
                                   int64_t width);

/* attention.c */
HG_EXPORT int hg_attend_forward(int path, int num_threads, const hg_attention_args *a);
HG_EXPORT int hg_attend_backward(int path, int num_threads, const hg_attention_args *a);

/* scores.c */
HG_EXPORT int hg_score_backward(int path, int num_threads, const hg_attention_args *a);

/* projection.c */
HG_EXPORT int hg_project(int path, int num_threads, const hg_projection_args *a);
HG_EXPORT int hg_project_backward(int path, int num_threads, const hg_projection_args *a);

/* chain.c */
HG_EXPORT int hg_chain_forward(int path, int num_threads, const hg_chain_args *a);
HG_EXPORT int hg_chain_backward(int path, int num_threads, const hg_chain_args *a);

/* convolution.c */
HG_EXPORT int hg_convolve(int path, int num_threads, const hg_convolution_args *a);
HG_EXPORT int hg_convolve_backward(int path, int num_threads, const hg_convolution_args *a);

/* matching.c */
HG_EXPORT int64_t hg_match(const int64_t *indptr, const int32_t *indices, int32_t *right_of, int32_t *left_of,
                           int64_t num_left, int64_t num_right);

#endif
