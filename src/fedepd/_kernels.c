/* The products and the element-wise steps of one training pass, on float32 rows and 32-bit CSR. Called through ctypes by kernels.py, which
   checks every shape and type; each function writes only its outputs and sums in one fixed order, so threads and repeats give the same bits. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* On x86 the functions need AVX2 and FMA, which fedepd_supported() asks the processor for; elsewhere the compiler's own choice will do. */
#if defined(__x86_64__)
#define FAST __attribute__((target("avx2,fma")))
int fedepd_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define FAST
int fedepd_supported(void) { return 1; }
#endif

typedef float lane __attribute__((vector_size(32), aligned(4), may_alias));
#define LANE 8

/* LANES * 8 columns from c on of row r of A dense, summed in registers. A macro, as an inlined function would be compiled before the
   processor is known. */
#define STRIP(LANES)                                                                  \
    {                                                                                 \
        lane sum[LANES];                                                              \
        for (int l = 0; l < (LANES); l++) sum[l] = (lane){0};                         \
        for (int32_t e = start[r]; e < start[r + 1]; e++) {                           \
            const lane *from = (const lane *)(dense + (int64_t)index[e] * width + c); \
            for (int l = 0; l < (LANES); l++) sum[l] += value[e] * from[l];           \
        }                                                                             \
        for (int l = 0; l < (LANES); l++) ((lane *)(out + r * width + c))[l] = sum[l]; \
    }

/* out = A dense */
FAST void fedepd_product(int64_t rows, int64_t width, const int32_t *restrict start, const int32_t *restrict index,
                           const float *restrict value, const float *restrict dense, float *restrict out) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t c = 0;
        for (; c + 8 * LANE <= width; c += 8 * LANE) STRIP(8)
        for (; c + 4 * LANE <= width; c += 4 * LANE) STRIP(4)
        for (; c + LANE <= width; c += LANE) STRIP(1)
        if (c < width && width > LANE) { /* the last columns once more, to the same sums */
            c = width - LANE;
            STRIP(1)
            c = width;
        }
        for (; c < width; c++) {
            float sum = 0;
            for (int32_t e = start[r]; e < start[r + 1]; e++) sum += value[e] * dense[(int64_t)index[e] * width + c];
            out[r * width + c] = sum;
        }
    }
}

/* h = dropout(relu(h + bias)) with one random bit per unit, most significant first: a unit is dropped (0) or doubled. No bits: no dropout. */
FAST void fedepd_activate(int64_t rows, int64_t width, const float *bias, const uint8_t *bits, float *h) {
    for (int64_t r = 0; r < rows; r++) {
        float *row = h + r * width;
        for (int64_t c = 0; c < width; c++) {
            const float sum = row[c] + bias[c];
            row[c] = sum < 0 ? 0 : sum; /* NaN stays NaN, as in torch */
        }
        if (!bits) continue;
        const int64_t first = r * width;
        if (width % 8 == 0) {
            for (int64_t c = 0; c < width; c += 8) {
                const unsigned byte = bits[(first + c) / 8];
                for (int k = 0; k < 8; k++) row[c + k] *= (float)((byte >> (7 - k) & 1) << 1);
            }
        } else {
            for (int64_t c = 0; c < width; c++) row[c] *= (float)((bits[(first + c) / 8] >> (7 - (first + c) % 8) & 1) << 1);
        }
    }
}

/* g = 0 where h <= 0, else scale * grad; bias_grad = the column sums of g. */
FAST void fedepd_activate_backward(int64_t rows, int64_t width, const float *grad, const float *h, float scale, float *g, float *bias_grad) {
    memset(bias_grad, 0, (size_t)width * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t first = r * width;
        for (int64_t c = 0; c < width; c++) {
            const float kept = h[first + c] <= 0 ? 0 : scale * grad[first + c];
            g[first + c] = kept;
            bias_grad[c] += kept;
        }
    }
}
