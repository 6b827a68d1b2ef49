/* The interface of projections: a layer's product of its rows with its weights, with what the rows pass through before. */
#ifndef HG_PROJECTION_H
#define HG_PROJECTION_H

#include "hg.h"

typedef struct {
    const void *x;              /* (rows, depth), of x_type: HG_F32, or without ELU HG_BF16 */
    const float *weight;        /* (depth, width) */
    void *y;                    /* (rows, width): the product; backwards its gradient, which is only read, of y_type */
    float *gx;                  /* backwards: (rows, depth), may be x, or NULL; without ELU added to if `add` */
    float *g_weight;            /* backwards: (depth, width), contiguous, added to */
    float *dots;                /* backwards, with ELU: (rows, heads) or NULL, as of hg_elu_gradient; likewise bias, sums, scaled */
    const float *bias;          /* (depth) or NULL */
    float *sums;                /* (depth) or NULL, added to */
    float *y_sums;              /* backwards: (width) or NULL, to which the columns' sums of y are added */
    const int64_t *ids;         /* (rows), NULL without dropout */
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
    int32_t rounded;            /* whether factors are rounded, see products.h */
    int32_t add;
    int32_t scaled;
    int32_t x_type;
    int32_t y_type;
} hg_projection_args;

#endif
