/* Template: a row in 8 bits for each number, rounded at random, and back (hpcgnn/kernels/coding.py has the rule).
 * Levels and rows are those of the reference to the bit. */

/* The largest magnitude of x; NaN if any of them is not finite. */
static double HG_T(magnitude_of)(const void *row, int64_t width)
{
    const HG_I unsigned_bits = (HG_I)(((uint64_t)1 << (8 * sizeof(HG_I) - 1)) - 1);
    HG_I most = 0, bits;                                /* without signs, numbers are ordered as their bits */
    HG_E magnitude;
    for (int64_t c = 0; c < width; c++) {
        memcpy(&bits, (const HG_E *)row + c, sizeof bits);
        bits &= unsigned_bits;
        most = bits > most ? bits : most;
    }
    memcpy(&magnitude, &most, sizeof most);
    return (double)(magnitude + (magnitude - magnitude));
}

/* levels[c] = floor(x[c] / step + draw), from -127 to 127, as bytes. */
static void HG_T(levels_of_row)(uint8_t *levels, const void *row, const uint32_t *words, int64_t num, double size)
{
    const HG_E *x = (const HG_E *)row, step = (HG_E)size, first = -127, last = 127;
    HG_E level[HG_LEVELS];
    for (int64_t c = 0; c < num; c++) {                 /* a loop of its own: the compiler makes vectors of both */
        const HG_E at = x[c] / step + (HG_E)(int32_t)(words[c] >> 8) * (HG_E)0x1p-24;
        const HG_E least = at > first ? at : first;     /* NaN becomes the first level */
        level[c] = least < last ? least : last;
    }
    for (int64_t c = 0; c < num; c++) {
        const int32_t whole = (int32_t)level[c];        /* towards zero; the compiler keeps calls of floor */
        levels[c] = (uint8_t)(whole - ((HG_E)whole > level[c]));
    }
}

/* codes[c] of num columns, HG_CODED at most, by their halves of random words (hpcgnn/kernels/coding.py has the rule). */
static void HG_T(codes_of_row)(int8_t *codes, const void *row, const uint16_t *halves, int64_t num, double step)
{
    const HG_E *x = (const HG_E *)row, size = (HG_E)step;
    for (int64_t c = 0; c < num; c++) {
        const HG_E draw = ((HG_E)halves[c] + (HG_E)0.5) * (HG_E)0x1p-16;
        HG_E level = (x[c] < 0 ? -x[c] : x[c]) / size + draw;
        level = level < (HG_E)126 ? level : (HG_E)126;  /* NaN as well */
        const int32_t code = (int32_t)level + 1;
        codes[c] = (int8_t)(x[c] > 0 ? code : x[c] < 0 ? -code : 0);
    }
}

/* out[c] of the code of the column. */
static void HG_T(decode_row)(void *row, const int8_t *codes, int64_t num, float step)
{
    HG_E *out = (HG_E *)row;
    for (int64_t c = 0; c < num; c++) {
        const int32_t sign = (codes[c] > 0) - (codes[c] < 0);
        const float level = (float)(codes[c] - sign) + (float)sign * 0x1p-24f;
        out[c] = (HG_E)(level * step);
    }
}

/* out[c] = step * level of the column. */
static void HG_T(widen_row)(void *row, const void *narrow, int64_t width, float step)
{
    HG_E *out = (HG_E *)row;
    const int8_t *from = (const int8_t *)narrow;
    for (int64_t c = 0; c < width; c++)
        out[c] = (HG_E)((float)from[c] * step);
}
