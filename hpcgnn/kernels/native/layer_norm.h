/* Template: what stands between the maps of a chain, of rows of a multiple of HG_PANEL numbers: rows that are chosen, layer norm
 * and its gradient; behind products_rows.h. */
HG_INLINE float sum_of_lanes(product_unit v)
{
#if HG_VECTOR_BYTES == 64
    const __m512d both = _mm512_castps_pd((__m512)v);
    const __m256 half = _mm256_castpd_ps(_mm512_castpd512_pd256(both)) + _mm256_castpd_ps(_mm512_extractf64x4_pd(both, 1));
#else
    const __m256 half = (__m256)v;
#endif
    const __m128 four = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1), two = four + _mm_movehl_ps(four, four);
    return two[0] + two[1];
}

#define HG_EACH_UNIT(c, width) for (int64_t c = 0; c < width; c += HG_VECTOR_BYTES / 4)

static void take_rows(float *to, int64_t to_stride, const float *from, int64_t stride, const int32_t *index, int64_t first,
                      int64_t num, int64_t width, int add)
{
    for (int64_t i = 0; i < num; i++, to += to_stride) {
        const float *row = from + (index ? index[first + i] : first + i) * stride;
        HG_EACH_UNIT(c, width) {
            product_unit value = HG_CONST_UNIT(row + c, 0);
            if (add)
                value += HG_UNIT(to + c, 0);
            HG_UNIT(to + c, 0) = value;
        }
    }
}

/* normal = (x - mean) * *inverse, y = normal * scale + shift unless y is NULL; normal and inverse are of rows one after the other. */
static void layer_norm(float *y, int64_t y_stride, float *normal, float *inverse, const float *x, int64_t x_stride,
                       const float *scale, const float *shift, float epsilon, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i++, normal += width, x += x_stride) {
        product_unit sum = {0}, squares = {0};
        HG_EACH_UNIT(c, width)
            sum += HG_CONST_UNIT(x + c, 0);
        const float mean = sum_of_lanes(sum) / (float)width;
        HG_EACH_UNIT(c, width) {
            const product_unit apart = HG_CONST_UNIT(x + c, 0) - mean;
            squares += apart * apart;
        }
        const float variance = sum_of_lanes(squares) / (float)width + epsilon;
        inverse[i] = 1 / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(variance)));
        HG_EACH_UNIT(c, width) {
            const product_unit result = (HG_CONST_UNIT(x + c, 0) - mean) * inverse[i];
            HG_UNIT(normal + c, 0) = result;
            if (y)
                HG_UNIT(y + i * y_stride + c, 0) = result * HG_CONST_UNIT(scale + c, 0) + HG_CONST_UNIT(shift + c, 0);
        }
    }
}

/* gx from gy, the gradient of y; sums (width) += gy * normal of each row, which is the gradient of scale. */
static void layer_norm_gradient(float *gx, int64_t gx_stride, const float *gy, int64_t gy_stride, const float *normal,
                                const float *inverse, const float *scale, float *sums, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i++, gx += gx_stride, gy += gy_stride, normal += width) {
        product_unit sum = {0}, products = {0};
        HG_EACH_UNIT(c, width) {
            const product_unit g = HG_CONST_UNIT(gy + c, 0), n = HG_CONST_UNIT(normal + c, 0);
            const product_unit scaled = g * HG_CONST_UNIT(scale + c, 0);
            sum += scaled;
            products += scaled * n;
            HG_UNIT(sums + c, 0) += g * n;
        }
        const float mean = sum_of_lanes(sum) / (float)width, along = sum_of_lanes(products) / (float)width;
        HG_EACH_UNIT(c, width)
            HG_UNIT(gx + c, 0) = (HG_CONST_UNIT(gy + c, 0) * HG_CONST_UNIT(scale + c, 0) - mean
                                  - HG_CONST_UNIT(normal + c, 0) * along) * inverse[i];
    }
}
