/* A largest matching of a bipartite graph, by paths that alternate between edges outside and inside it. */
#include <stdlib.h>
#include <string.h>

#include "hg.h"

typedef struct {
    const int64_t *indptr;          /* of the left vertices */
    const int32_t *indices;
    int32_t *right_of, *left_of;    /* mates, -1: free */
    int64_t *ahead;                 /* of each left vertex, its first edge whose end may be free */
    int64_t *next;                  /* its first edge that no path of this phase has tried */
    int32_t *phase, *path;          /* left vertices: the last phase that reached it; the path */
} hg_bipartite;

/* Extend the matching by a path from a free left vertex, over vertices that no path of this phase has reached. */
static int augment(hg_bipartite *g, int32_t start, int32_t phase)
{
    int64_t depth = 0;
    g->path[0] = start;
    g->phase[start] = phase;
    while (depth >= 0) {
        const int32_t u = g->path[depth];
        const int64_t end = g->indptr[u + 1];
        while (g->ahead[u] < end && g->left_of[g->indices[g->ahead[u]]] >= 0)
            g->ahead[u]++;
        if (g->ahead[u] < end) {
            for (int32_t v = g->indices[g->ahead[u]]; depth >= 0; depth--) {
                const int32_t on = g->path[depth], before = g->right_of[on];
                g->right_of[on] = v;
                g->left_of[v] = on;
                v = before;
            }
            return 1;
        }
        int32_t w = -1;
        while (w < 0 && g->next[u] < end) {
            const int64_t e = g->next[u]++;
            w = g->left_of[g->indices[phase & 1 ? e : g->indptr[u] + end - 1 - e]];
            if (g->phase[w] == phase)
                w = -1;
        }
        if (w < 0) {
            depth--;
            continue;
        }
        g->phase[w] = phase;
        g->path[++depth] = w;
    }
    return 0;
}

/* The mates of the left vertices, (num_left), and of the right ones, (num_right), or -1. Phases of paths without common
 * vertices go on until one finds none (Pothen and Fan, ACM Trans. Math. Softw. 1990). Every second phase takes edges from the
 * last one on: paths are much shorter so (Duff, Kaya, Uçar, ACM Trans. Math. Softw. 2011). Returns how many edges the
 * matching has, or -1 where memory ran out. */
HG_EXPORT int64_t hg_match(const int64_t *indptr, const int32_t *indices, int32_t *right_of, int32_t *left_of,
                           int64_t num_left, int64_t num_right)
{
    const size_t lefts = (size_t)num_left + 1;
    int64_t *edges = malloc(2 * lefts * sizeof *edges);
    int32_t *vertices = calloc(2 * lefts, sizeof *vertices);
    hg_bipartite g = {indptr, indices, right_of, left_of, edges, edges + lefts, vertices, vertices + lefts};
    int64_t found = -1, before = -2;
    if (edges && vertices) {
        for (int64_t u = 0; u < num_left; u++) /* no memset: of no vertices there is no array */
            right_of[u] = -1;
        for (int64_t v = 0; v < num_right; v++)
            left_of[v] = -1;
        memcpy(g.ahead, indptr, (size_t)num_left * sizeof *g.ahead);
        found = 0;
        for (int32_t phase = 1; found != before; phase++) {
            before = found;
            memcpy(g.next, indptr, (size_t)num_left * sizeof *g.next);
            for (int64_t u = 0; u < num_left; u++)
                if (right_of[u] < 0)
                    found += augment(&g, (int32_t)u, phase);
        }
    }
    free(edges);
    free(vertices);
    return found;
}
