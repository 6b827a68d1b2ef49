/* The least vertex cover of a bipartite graph: a largest matching (Hopcroft and Karp, SIAM J. Comput. 1973), and from it
 * the covers by König's theorem.
 *
 * Between two ranks the left vertices are one's nodes, the right ones the other's, and edges are those that are cut. A
 * cover of as few vertices as the matching has edges is the least number of rows by which either can serve the other.
 */
#include <stdlib.h>
#include <string.h>

#include "hg.h"

typedef struct {
    const int64_t *indptr;      /* of the left vertices */
    const int32_t *indices;
    int64_t num_left, num_right;
    int32_t *left_mate, *right_mate;    /* -1: free */
    int32_t *level, *queue;             /* of the left vertices */
    int64_t *next;                      /* of each left vertex, the edge that is looked at next */
} hg_bipartite;

/* Match each vertex with a free one, those with one edge first: most of the matching. */
static int64_t match_greedily(hg_bipartite *g)
{
    int64_t found = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t u = 0; u < g->num_left; u++) {
            if (g->left_mate[u] >= 0 || (pass == 0 && g->indptr[u + 1] - g->indptr[u] != 1))
                continue;
            for (int64_t e = g->indptr[u]; e < g->indptr[u + 1]; e++)
                if (g->right_mate[g->indices[e]] < 0) {
                    g->left_mate[u] = g->indices[e];
                    g->right_mate[g->indices[e]] = (int32_t)u;
                    found++;
                    break;
                }
        }
    return found;
}

/* Levels of the left vertices by alternating paths from the free ones, -1 for what they do not reach. Returns the level
 * at which such a path first ends at a free right vertex, or -1: then all that can be reached has a level. */
static int32_t find_levels(hg_bipartite *g)
{
    int64_t head = 0, tail = 0;
    int32_t last = -1;
    for (int64_t u = 0; u < g->num_left; u++) {
        g->level[u] = g->left_mate[u] < 0 ? 0 : -1;
        if (g->left_mate[u] < 0)
            g->queue[tail++] = (int32_t)u;
    }
    while (head < tail) {
        const int32_t u = g->queue[head++];
        if (last >= 0 && g->level[u] >= last)
            break;
        for (int64_t e = g->indptr[u]; e < g->indptr[u + 1]; e++) {
            const int32_t w = g->right_mate[g->indices[e]];
            if (w < 0)
                last = g->level[u];
            else if (g->level[w] < 0) {
                g->level[w] = g->level[u] + 1;
                g->queue[tail++] = w;
            }
        }
    }
    return last;
}

/* Follow the levels from a free left vertex to a free right one, and match along the way. The queue is the path. */
static int augment(hg_bipartite *g, int32_t start)
{
    int64_t depth = 0;
    g->queue[0] = start;
    while (depth >= 0) {
        const int32_t u = g->queue[depth];
        if (g->next[u] == g->indptr[u + 1]) {
            g->level[u] = -1;   /* leads nowhere */
            depth--;
            continue;
        }
        const int32_t v = g->indices[g->next[u]++], w = g->right_mate[v];
        if (w < 0) {
            for (; depth >= 0; depth--) {
                const int32_t on = g->queue[depth], to = g->indices[g->next[on] - 1];
                g->left_mate[on] = to;
                g->right_mate[to] = on;
            }
            return 1;
        }
        if (g->level[w] == g->level[u] + 1)
            g->queue[++depth] = w;
    }
    return 0;
}

/* Bit 1: the cover with as many right vertices as there can be. From the free right vertices alternating paths are
 * followed over the transposed edges; what they reach on the left is in the cover, and so are the other matched right
 * ones. Returns 0, or -1 where memory ran out. */
static int cover_from_right(hg_bipartite *g, uint8_t *left, uint8_t *right)
{
    const int64_t first = g->indptr[0], num_edges = g->indptr[g->num_left] - first;
    int64_t *begin = calloc((size_t)g->num_right + 2, sizeof *begin);
    int32_t *lefts = malloc(((size_t)num_edges + 1) * sizeof *lefts);
    if (!begin || !lefts) {
        free(begin);
        free(lefts);
        return -1;
    }
    for (int64_t e = 0; e < num_edges; e++)
        begin[g->indices[first + e] + 2]++;
    for (int64_t v = 0; v < g->num_right; v++)
        begin[v + 2] += begin[v + 1];
    for (int64_t u = 0; u < g->num_left; u++)
        for (int64_t e = g->indptr[u]; e < g->indptr[u + 1]; e++)
            lefts[begin[g->indices[e] + 1]++] = (int32_t)u;
    int64_t head = 0, tail = 0;
    /* A left vertex is visited once, and its mate with it. */
    for (int64_t v = 0; v < g->num_right; v++) {
        if (g->right_mate[v] >= 0)
            continue;
        for (int64_t e = begin[v]; e < begin[v + 1]; e++)
            if (!(left[lefts[e]] & 2)) {
                left[lefts[e]] |= 2;
                g->queue[tail++] = lefts[e];
            }
    }
    while (head < tail) {
        const int32_t v = g->left_mate[g->queue[head++]];
        for (int64_t e = begin[v]; e < begin[v + 1]; e++)
            if (!(left[lefts[e]] & 2)) {
                left[lefts[e]] |= 2;
                g->queue[tail++] = lefts[e];
            }
    }
    for (int64_t v = 0; v < g->num_right; v++)
        if (g->right_mate[v] >= 0 && !(left[g->right_mate[v]] & 2))
            right[v] |= 2;
    free(begin);
    free(lefts);
    return 0;
}

/* Bits of left and right: 1, in the least cover that has as many left vertices as there can be; 2, as many right ones.
 * Returns the number of vertices of either, or -1 where memory ran out. */
HG_EXPORT int64_t hg_least_cover(const int64_t *indptr, int64_t num_left, const int32_t *indices, int64_t num_right,
                                 uint8_t *left, uint8_t *right)
{
    const size_t lefts = (size_t)num_left + 1, rights = (size_t)num_right + 1;
    hg_bipartite g = {indptr, indices, num_left, num_right,
                      malloc(lefts * sizeof(int32_t)), malloc(rights * sizeof(int32_t)),
                      malloc(lefts * sizeof(int32_t)), malloc(lefts * sizeof(int32_t)), malloc(lefts * sizeof(int64_t))};
    int64_t found = -1;
    if (g.left_mate && g.right_mate && g.level && g.queue && g.next) {
        memset(g.left_mate, -1, lefts * sizeof(int32_t));
        memset(g.right_mate, -1, rights * sizeof(int32_t));
        memset(left, 0, (size_t)num_left);
        memset(right, 0, (size_t)num_right);
        found = match_greedily(&g);
        while (find_levels(&g) >= 0) {
            memcpy(g.next, indptr, (size_t)num_left * sizeof(int64_t));
            for (int64_t u = 0; u < num_left; u++)
                if (g.left_mate[u] < 0)
                    found += augment(&g, (int32_t)u);
        }
        for (int64_t u = 0; u < num_left; u++)
            left[u] = g.level[u] < 0;
        for (int64_t v = 0; v < num_right; v++)
            right[v] = g.right_mate[v] >= 0 && g.level[g.right_mate[v]] >= 0;
        if (cover_from_right(&g, left, right))
            found = -1;
    }
    free(g.left_mate);
    free(g.right_mate);
    free(g.level);
    free(g.queue);
    free(g.next);
    return found;
}
