/* The products and the element-wise steps of one training pass, on float32 rows and 32-bit CSR.

   kernels.py calls them through ctypes and checks every shape and type. Each function writes only its outputs
   and sums in one fixed order, so threads and repetitions give the same bits. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* On x86 the functions need AVX2 and FMA. fedepd_supported() asks the processor for both. Products also have
   a form for AVX-512. It sums the same numbers in the same order, so it has the same bits. On other machines
   the compiler chooses. */
#if defined(__x86_64__)
#define FAST __attribute__((target("avx2,fma")))
#define WIDE __attribute__((target("avx512f,avx2,fma")))
static int wide = 0;
int fedepd_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
/* Whether products use AVX-512 from now on: if it is wanted and there. */
int fedepd_widen(int wanted) {
    __builtin_cpu_init();
    return wide = wanted && __builtin_cpu_supports("avx512f");
}
/* Whether fedepd_dense_product is quicker than MKL, which uses AVX-512 on Intel's processors only. */
int fedepd_beats_mkl(void) { return wide && __builtin_cpu_is("amd"); }
#else
#define FAST
#define WIDE
static const int wide = 0;
int fedepd_supported(void) { return 1; }
int fedepd_widen(int wanted) {
    (void)wanted;
    return 0;
}
int fedepd_beats_mkl(void) { return 0; }
#endif

typedef float lane __attribute__((vector_size(32), aligned(4), may_alias));
typedef float wide_lane __attribute__((vector_size(64), aligned(4), may_alias));
#define LANE 8
#define WIDE_LANE 16

/* Whether wide lanes are quicker: at other widths most rows begin within a cache line, and every second load
   would read two lines. */
static int fits_wide(int64_t width) { return wide && width % WIDE_LANE == 0; }

/* Sums COUNT lanes of columns, starting at c, of row r of A dense in registers, and stores them in row `to`
   of out. The last lane begins `last` columns after c. It is a macro, so that it is compiled for the same
   processor as the function that uses it. */
#define STRIP(KIND, COUNT)                                                                       \
    {                                                                                            \
        KIND sum[COUNT];                                                                         \
        for (int l = 0; l < (COUNT); l++) sum[l] = (KIND){0};                                    \
        for (int32_t e = start[r]; e < start[r + 1]; e++) {                                      \
            const float *from = dense + (int64_t)index[e] * width + c;                           \
            for (int l = 0; l < (COUNT) - 1; l++) sum[l] += value[e] * ((const KIND *)from)[l];  \
            sum[(COUNT) - 1] += value[e] * *(const KIND *)(from + last);                         \
        }                                                                                        \
        float *at = out + to * width + c;                                                        \
        for (int l = 0; l < (COUNT) - 1; l++) ((KIND *)at)[l] = sum[l];                          \
        *(KIND *)(at + last) = sum[(COUNT) - 1];                                                 \
    }

/* All columns of that row, of which there are LANE or more. The last lane ends with the row. So it may
   compute columns again, with the same sums. */
#define ROW                                                                             \
    for (int64_t c = 0, lanes; c < width; c += lanes * LANE) {                          \
        const int64_t left = (width - c + LANE - 1) / LANE;                             \
        lanes = left <= 8 ? left : left < 16 ? left / 2 : 8;                            \
        const int64_t last = lanes == left ? width - c - LANE : (lanes - 1) * LANE;     \
        switch (lanes) {                                                                \
            case 8: STRIP(lane, 8) break;                                               \
            case 7: STRIP(lane, 7) break;                                               \
            case 6: STRIP(lane, 6) break;                                               \
            case 5: STRIP(lane, 5) break;                                               \
            case 4: STRIP(lane, 4) break;                                               \
            case 3: STRIP(lane, 3) break;                                               \
            case 2: STRIP(lane, 2) break;                                               \
            default: STRIP(lane, 1)                                                     \
        }                                                                               \
    }

/* All columns of that row, of which there are fewer than LANE. */
#define NARROW_ROW                                                  \
    for (int64_t c = 0; c < width; c++) {                           \
        float sum = 0;                                              \
        for (int32_t e = start[r]; e < start[r + 1]; e++)           \
            sum += value[e] * dense[(int64_t)index[e] * width + c]; \
        out[to * width + c] = sum;                                  \
    }

/* All columns of that row, where fits_wide(width). */
#define WIDE_ROW                                                                   \
    {                                                                              \
        int64_t c = 0, last = 3 * WIDE_LANE;                                       \
        for (; c + 4 * WIDE_LANE <= width; c += 4 * WIDE_LANE) STRIP(wide_lane, 4) \
        for (last = 0; c < width; c += WIDE_LANE) STRIP(wide_lane, 1)              \
    }

#define PRODUCT                                                                                    \
    (int64_t count, const int64_t *restrict chosen, int64_t width, const int32_t *restrict start,  \
     const int32_t *restrict index, const float *restrict value, const float *restrict dense,      \
     float *restrict out)

WIDE static void wide_product PRODUCT {
    for (int64_t to = 0; to < count; to++) {
        const int64_t r = chosen ? chosen[to] : to;
        WIDE_ROW
    }
}

FAST static void product PRODUCT {
    for (int64_t to = 0; to < count; to++) {
        const int64_t r = chosen ? chosen[to] : to;
        if (width >= LANE) ROW
        else NARROW_ROW
    }
}

/* out = A[chosen] dense, without a copy of these rows. NULL chooses the first `count` rows. */
void fedepd_product PRODUCT {
    (fits_wide(width) ? wide_product : product)(count, chosen, width, start, index, value, dense, out);
}

/* Products with a matrix in tiles of TILE_HEIGHT columns (fedepd_tiles). What a tile reads of a strip of the
   dense rows fits the first cache. */
#define STRIP_WIDTH 64
#define TILE_HEIGHT 128

#define QUAD 4

/* Adds what row[p] has in a tile to the row's sums of the tiles before it. The rows of the strip that the
   tile reads lie beside each other at `near`. A quad says where four of them begin, in bytes. The next one is
   read early: it would wait behind the sums. */
#define TILE_ROW(KIND, TERM)                                                                \
    {                                                                                       \
        enum { COUNT = STRIP_WIDTH * sizeof(float) / sizeof(KIND) };                        \
        KIND sum[COUNT], *to = (KIND *)(out + row[p] * width);                              \
        for (int l = 0; l < COUNT; l++) sum[l] = first ? (KIND){0} : to[l];                 \
        for (int64_t q = start[p]; q < start[p + 1]; q++) {                                 \
            const uint64_t now = next;                                                      \
            next = quad[q + 1];                                                             \
            for (int i = 0; i < QUAD; i++) {                                                \
                const KIND *from = (const KIND *)(near + (uint16_t)(now >> (16 * i)));      \
                for (int l = 0; l < COUNT; l++) sum[l] += TERM;                             \
            }                                                                               \
        }                                                                                   \
        for (int l = 0; l < COUNT; l++) to[l] = sum[l];                                     \
    }

#define TILE_ROWS(KIND)                                                                  \
    uint64_t next = quad[start[0]];                                                      \
    if (value)                                                                           \
        for (int64_t p = 0; p < rows; p++) TILE_ROW(KIND, value[q * QUAD + i] * from[l]) \
    else                                                                                 \
        for (int64_t p = 0; p < rows; p++) TILE_ROW(KIND, from[l])

#define TILE                                                                                             \
    (int64_t rows, int64_t width, int first, const int32_t *restrict start, const int32_t *restrict row, \
     const uint64_t *restrict quad, const float *restrict value, const char *restrict near,              \
     float *restrict out)

WIDE static void wide_tile TILE { TILE_ROWS(wide_lane) }

FAST static void tile TILE { TILE_ROWS(lane) }

/* out = A dense. The entries of a row are added one after the other, so the bits are those of fedepd_product.
   The width is a multiple of STRIP_WIDTH. value is NULL where all values are 1. */
void fedepd_tiled_product(int64_t rows, int64_t columns, int64_t width, const int32_t *restrict start,
                          const int32_t *restrict row, const uint64_t *restrict quad,
                          const float *restrict value, const float *restrict dense, float *restrict out) {
    float near[(TILE_HEIGHT + 1) * STRIP_WIDTH] __attribute__((aligned(64)));
    for (int64_t c = 0; c < STRIP_WIDTH; c++) near[TILE_HEIGHT * STRIP_WIDTH + c] = -0.0f; /* adds nothing */
    for (int64_t c = 0; c < width; c += STRIP_WIDTH)
        for (int64_t top = 0; top < columns; top += TILE_HEIGHT) {
            const int64_t height = columns - top < TILE_HEIGHT ? columns - top : TILE_HEIGHT;
            const int64_t done = top / TILE_HEIGHT * rows;
            for (int64_t r = 0; r < height; r++)
                memcpy(near + r * STRIP_WIDTH, dense + (top + r) * width + c, STRIP_WIDTH * sizeof(float));
            (wide ? wide_tile : tile)(rows, width, top == 0, start + done, row + done, quad, value,
                                      (const char *)near, out + c);
        }
}

/* Stores up to `left` numbers, or adds them to those that are there. */
static WIDE inline void keep(float *to, wide_lane sum, int64_t left, int64_t add) {
    const size_t size = (size_t)(left < WIDE_LANE ? left : WIDE_LANE) * sizeof(float);
    wide_lane before = {0};
    if (add) {
        memcpy(&before, to, size);
        sum += before;
    }
    if (left >= WIDE_LANE) *(wide_lane *)to = sum;
    else memcpy(to, &sum, size);
}

/* Adds entries begin .. end - 1 of ROWS rows, for COUNT lanes of columns, in registers. */
#define BLOCK_OF(ROWS, COUNT)                                                                       \
    {                                                                                               \
        wide_lane sum[ROWS][COUNT];                                                                 \
        for (int i = 0; i < (ROWS); i++)                                                            \
            for (int l = 0; l < (COUNT); l++) sum[i][l] = (wide_lane){0};                           \
        for (int64_t j = begin; j < end; j++) {                                                     \
            const wide_lane *from = (const wide_lane *)(near + j * padded + c);                     \
            for (int i = 0; i < (ROWS); i++)                                                        \
                for (int l = 0; l < (COUNT); l++) sum[i][l] += left[(r + i) * below + j * beside] * from[l]; \
        }                                                                                           \
        for (int i = 0; i < (ROWS); i++)                                                            \
            for (int l = 0; l < (COUNT); l++) {                                                     \
                const int64_t at = c + l * WIDE_LANE;                                               \
                keep(out + (r + i) * width + at, sum[i][l], width - at, begin || added);            \
            }                                                                                       \
    }

#define BLOCKS_OF(ROWS)                                                          \
    for (; r + (ROWS) <= rows; r += (ROWS))                                      \
        for (int64_t c = 0, lanes; c < padded; c += lanes * WIDE_LANE) {         \
            lanes = (padded - c) / WIDE_LANE < 4 ? (padded - c) / WIDE_LANE : 4; \
            switch (lanes) {                                                     \
                case 4: BLOCK_OF(ROWS, 4) break;                                 \
                case 3: BLOCK_OF(ROWS, 3) break;                                 \
                case 2: BLOCK_OF(ROWS, 2) break;                                 \
                default: BLOCK_OF(ROWS, 1)                                       \
            }                                                                    \
        }

/* out = left right, [rows, width], or out += left right. right[j][c] stands at right[j * down + c * across]. near is work space for
   `inner` rows of `width` numbers, rounded up to a multiple of WIDE_LANE. It sums as MKL does on AMD's
   processors: in parts of at most 192 entries, each from its first entry to its last. */
WIDE void fedepd_dense_product(int64_t rows, int64_t inner, int64_t width, int64_t below, int64_t beside,
                               int64_t down, int64_t across, int64_t added, const float *restrict left, const float *restrict right, float *restrict near,
                               float *restrict out) {
    const int64_t padded = (width + WIDE_LANE - 1) / WIDE_LANE * WIDE_LANE;
    const int64_t part = inner <= 192 ? inner : inner < 384 ? inner / 2 : 192;
    for (int64_t j = 0; j < inner; j++)
        for (int64_t c = 0; c < padded; c++)
            near[j * padded + c] = c < width ? right[j * down + c * across] : 0;
    for (int64_t begin = 0; begin < inner; begin += part) {
        const int64_t end = inner - begin < part ? inner : begin + part;
        int64_t r = 0;
        BLOCKS_OF(6)
        BLOCKS_OF(1)
    }
}

/* Keeps a product apart from the sum that it is added to, so that both are rounded. */
#if defined(__x86_64__)
#define ROUNDED(product) __asm__("" : "+v"(product))
#else
#define ROUNDED(product) (void)(product)
#endif

/* Adds entry j of ROWS rows, which stand four rows apart, to their sums and to others. */
#define NARROW_ENTRY(ROWS, OTHER)                                                         \
    for (int i = 0; i < (ROWS); i++) {                                                    \
        wide_lane product = left[(r + 4 * i) * below + j * beside] * near[j];             \
        ROUNDED(product);                                                                 \
        sum[i] += product;                                                                \
        OTHER[i] += product;                                                              \
    }

/* These rows of left right. In the first `apart` columns, of every eight entries the last four are summed
   before they are added. */
#define NARROW_ROWS(ROWS, APART)                                                          \
    {                                                                                     \
        wide_lane sum[ROWS], other[ROWS], half[ROWS];                                     \
        int64_t j = 0;                                                                    \
        for (int i = 0; i < (ROWS); i++) sum[i] = other[i] = (wide_lane){0};              \
        while ((APART) && j + 8 <= inner) {                                               \
            for (int i = 0; i < (ROWS); i++) half[i] = (wide_lane){0};                    \
            for (const int64_t end = j + 4; j < end; j++) NARROW_ENTRY(ROWS, other)       \
            for (const int64_t end = j + 4; j < end; j++) NARROW_ENTRY(ROWS, half)        \
            for (int i = 0; i < (ROWS); i++) other[i] += half[i];                         \
        }                                                                                 \
        for (; j < inner; j++) NARROW_ENTRY(ROWS, other)                                  \
        for (int i = 0; i < (ROWS); i++) {                                                \
            float *to = out + (r + 4 * i) * width;                                        \
            memcpy(to, &sum[i], (size_t)width * sizeof(float));                           \
            memcpy(to, &other[i], (size_t)(APART) * sizeof(float));                       \
        }                                                                                 \
    }

/* out = left right, [rows, width], of up to WIDE_LANE columns. left[r][j] stands at
   left[r * below + j * beside], right[j][c] at right[j * down + c * across]. near is work space for `inner`
   lanes. It sums as MKL does on AMD's processors where there are 2 to 11 columns: MKL takes the columns of a
   row before the first 16th byte apart, where four or more others are left. */
WIDE void fedepd_narrow_product(int64_t rows, int64_t inner, int64_t width, int64_t below, int64_t beside,
                                int64_t down, int64_t across, const float *restrict left,
                                const float *restrict right, wide_lane *restrict near, float *restrict out) {
    for (int64_t j = 0; j < inner; j++)
        for (int64_t c = 0; c < WIDE_LANE; c++) near[j][c] = c < width ? right[j * down + c * across] : 0;
    for (int64_t phase = 0; phase < 4; phase++) {
        const int64_t before = (4 - phase * width % 4) % 4, apart = before + 4 <= width ? before : 0;
        int64_t r = phase;
        if (apart) {
            for (; r + 12 < rows; r += 16) NARROW_ROWS(4, apart)
            for (; r < rows; r += 4) NARROW_ROWS(1, apart)
        }
        for (; r + 20 < rows; r += 24) NARROW_ROWS(6, 0)
        for (; r < rows; r += 4) NARROW_ROWS(1, 0)
    }
}

/* Adds, to COUNT lanes of every row of out, starting at column c, the rows of dense whose bit is set. */
#define GATHER(KIND, COUNT)                                                              \
    for (int64_t j = 0; j < units; j++) {                                                \
        KIND sum[COUNT], *to = (KIND *)(out + j * width + c);                            \
        for (int l = 0; l < (COUNT); l++) sum[l] = to[l];                                \
        for (uint32_t left = (uint32_t)filled[j]; left; left &= left - 1) {              \
            const int64_t r = first + __builtin_ctz(left);                               \
            const KIND *from = (const KIND *)(dense + r * width + c);                    \
            for (int l = 0; l < (COUNT); l++) sum[l] += holey[r * units + j] * from[l];  \
        }                                                                                \
        for (int l = 0; l < (COUNT); l++) to[l] = sum[l];                                \
    }

typedef int32_t ints __attribute__((vector_size(32), aligned(4), may_alias));
#define BLOCK 32

#define GATHER_ROWS                                                                               \
    (int64_t first, int64_t units, int64_t width, const float *restrict holey,                    \
     const float *restrict dense, const int32_t *restrict filled, float *restrict out)

WIDE static void wide_gather GATHER_ROWS {
    int64_t c = 0;
    for (; c + 8 * WIDE_LANE <= width; c += 8 * WIDE_LANE) GATHER(wide_lane, 8)
    for (; c + 4 * WIDE_LANE <= width; c += 4 * WIDE_LANE) GATHER(wide_lane, 4)
    for (; c < width; c += WIDE_LANE) GATHER(wide_lane, 1)
}

FAST static void gather GATHER_ROWS {
    for (int64_t c = 0, lanes; c < width; c += lanes * LANE) {
        lanes = (width - c) / LANE < 8 ? (width - c) / LANE : 8;
        switch (lanes) {
            case 8: GATHER(lane, 8) break;
            case 7: GATHER(lane, 7) break;
            case 6: GATHER(lane, 6) break;
            case 5: GATHER(lane, 5) break;
            case 4: GATHER(lane, 4) break;
            case 3: GATHER(lane, 3) break;
            case 2: GATHER(lane, 2) break;
            default: GATHER(lane, 1)
        }
    }
}

/* out = holey^T dense, [units, width]. It skips the zeros of holey; ReLU and dropout make many of them. Both
   widths are multiples of 8. filled is work space for `units` integers. */
FAST void fedepd_transposed_product(int64_t rows, int64_t units, int64_t width, const float *restrict holey,
                                    const float *restrict dense, int32_t *restrict filled,
                                    float *restrict out) {
    memset(out, 0, (size_t)(units * width) * sizeof(float));
    for (int64_t first = 0; first < rows; first += BLOCK) {
        const int64_t count = rows - first < BLOCK ? rows - first : BLOCK;
        memset(filled, 0, (size_t)units * sizeof(int32_t));
        for (int64_t r = 0; r < count; r++) {
            const ints bit = (ints){0} + (int32_t)(1u << r);
            for (int64_t j = 0; j < units; j += LANE)
                *(ints *)(filled + j) |= (*(const lane *)(holey + (first + r) * units + j) != 0) & bit;
        }
        (fits_wide(width) ? wide_gather : gather)(first, units, width, holey, dense, filled, out);
    }
}

/* h = dropout(relu(h + bias)). One random bit per unit, most significant first, says whether the unit is
   dropped (0) or doubled (1). Without bits there is no dropout. */
FAST void fedepd_activate(int64_t rows, int64_t width, const float *bias, const uint8_t *bits, float *h) {
    const ints place = {128, 64, 32, 16, 8, 4, 2, 1};
    const lane twice = (lane){0} + 2.0f;
    const int64_t whole = width % LANE ? 0 : width;
    for (int64_t r = 0; r < rows; r++) {
        float *row = h + r * width;
        const int64_t first = r * width;
        for (int64_t c = 0; c < whole; c += LANE) {
            const lane sum = *(lane *)(row + c) + *(const lane *)(bias + c);
            lane kept = (lane)((ints)sum & ~(sum < 0)); /* NaN stays NaN, as in torch */
            if (bits) kept *= (lane)((ints)twice & ((bits[(first + c) / 8] & place) != 0));
            *(lane *)(row + c) = kept;
        }
        for (int64_t c = whole; c < width; c++) {
            const float sum = row[c] + bias[c];
            row[c] = sum < 0 ? 0 : sum;
            if (bits) row[c] *= (float)((bits[(first + c) / 8] >> (7 - (first + c) % 8) & 1) << 1);
        }
    }
}

/* g = 0 where h <= 0, else scale * grad; bias_grad = the column sums of g. */
FAST void fedepd_activate_backward(int64_t rows, int64_t width, const float *grad, const float *h,
                                   float scale, float *g, float *bias_grad) {
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

/* e^x for x <= 0, accurate to 2 units in the last place, as 2^n e^r with |r| <= ln(2) / 2. The result is 0
   where e^x is not a normal float, and NaN for NaN. */
static FAST inline lane lanes_exp(lane x) {
    const ints gone = x < -87.0f;
    const lane n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest integer */
    const lane r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    lane sum = r * 1.9875691500e-4f + 1.3981999507e-3f;
    sum = sum * r + 8.3334519073e-3f;
    sum = sum * r + 4.1665795894e-2f;
    sum = sum * r + 1.6666665459e-1f;
    sum = sum * r + 5.0000001201e-1f;
    sum = sum * r * r + r + 1.0f;
    const ints power = (__builtin_convertvector(n, ints) + 127) << 23;
    const lane out = sum * (lane)power;
    return (lane)((ints)out & ~gone);
}

/* The next eight numbers of a row that has `left` more, of a matrix that stops at `end`. Beyond the row they
   are -inf, which is never a maximum and whose e^x adds nothing. */
static FAST inline lane lanes_of(const float *from, int64_t left, const float *end) {
    if (left >= LANE) return *(const lane *)from;
    lane out = (lane){0} - INFINITY;
    if (end - from >= LANE) {
        const ints own = (ints){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)left;
        return (lane)(((ints) * (const lane *)from & own) | ((ints)out & ~own));
    }
    for (int l = 0; l < left; l++) out[l] = from[l];
    return out;
}

static FAST inline void lanes_to(float *to, lane values, int64_t left) {
    if (left >= LANE) *(lane *)to = values;
    else
        for (int l = 0; l < left; l++) to[l] = values[l];
}

/* *loss = `weight` times the mean cross-entropy of softmax(z + shift) against the labels. z is overwritten by
   its gradient. shift may be NULL. If a label is not a column, the function returns 1 and z is unusable. */
FAST int fedepd_cross_entropy(int64_t rows, int64_t width, const float *shift, const int64_t *label,
                              double weight, float *z, double *loss) {
    const float scale = (float)(weight / (double)rows), *end = z + rows * width;
    double total = 0;
    for (int64_t r = 0; r < rows; r++) {
        float *row = z + r * width;
        if (label[r] < 0 || label[r] >= width) return 1;
        lane tops = (lane){0} - INFINITY, sums = {0};
        for (int64_t c = 0; c < width; c += LANE) {
            lane x = lanes_of(row + c, width - c, end);
            if (shift) {
                x += lanes_of(shift + c, width - c, shift + width);
                lanes_to(row + c, x, width - c);
            }
            const ints above = x > tops;
            tops = (lane)(((ints)x & above) | ((ints)tops & ~above));
        }
        float top = tops[0], sum = 0;
        for (int l = 1; l < LANE; l++) top = tops[l] > top ? tops[l] : top;
        const float own = row[label[r]];
        for (int64_t c = 0; c < width; c += LANE) {
            const lane x = lanes_exp(lanes_of(row + c, width - c, end) - top);
            lanes_to(row + c, x, width - c);
            sums += x;
        }
        for (int l = 0; l < LANE; l++) sum += sums[l];
        total += log((double)sum) + ((double)top - (double)own);
        const float share = scale / sum;
        for (int64_t c = 0; c < width; c++) row[c] *= share;
        row[label[r]] -= scale;
    }
    *loss = weight * total / (double)rows;
    return 0;
}

/* The column of each row's first largest number, or of its first NaN. */
FAST void fedepd_largest(int64_t rows, int64_t width, const float *restrict z, int64_t *restrict out) {
    for (int64_t r = 0; r < rows; r++) {
        const float *row = z + r * width;
        const ints begin = {0, 1, 2, 3, 4, 5, 6, 7};
        lane tops = (lane){0} - INFINITY;
        ints places = begin, odd = {0};
        for (int64_t c = 0; c < width; c += LANE) {
            const lane x = lanes_of(row + c, width - c, z + rows * width);
            const ints above = x > tops;
            odd |= x != x;
            tops = (lane)(((ints)x & above) | ((ints)tops & ~above));
            places = ((begin + (int32_t)c) & above) | (places & ~above);
        }
        int32_t best = 0, any = 0;
        for (int l = 0; l < LANE; l++) any |= odd[l];
        for (int l = 1; l < LANE; l++)
            if (tops[l] > tops[best] || (tops[l] == tops[best] && places[l] < places[best])) best = l;
        out[r] = places[best];
        if (any)
            for (out[r] = 0; row[out[r]] == row[out[r]];) out[r]++;
    }
}

/* One step of Adam with an L2 penalty. `rate` is the learning rate divided by the bias correction of the
   first moment, `root` is the square root of that of the second, and new1 and new2 are 1 - beta. */
FAST void fedepd_adam(int64_t size, float rate, float root, float new1, float new2, float eps, float decay,
                      const float *restrict grad, float *restrict value, float *restrict first,
                      float *restrict second) {
    for (int64_t i = 0; i < size; i++) {
        const float g = grad[i] + decay * value[i];
        const float m = first[i] + new1 * (g - first[i]);
        const float v = second[i] + new2 * (g * g - second[i]);
        first[i] = m;
        second[i] = v;
        value[i] -= rate * m / (sqrtf(v) / root + eps);
    }
}

/* Turns the numbers of entries per row, which stand one place late, into the places where rows begin. */
static void begin_rows(int64_t rows, int32_t *start) {
    for (int64_t r = 0; r < rows; r++) start[r + 1] += start[r];
}

/* After every row was filled, start[r] is where row r ends. This makes it again where row r begins. */
static void rewind_rows(int64_t rows, int32_t *start) {
    memmove(start + 1, start, (size_t)rows * sizeof(int32_t));
    start[0] = 0;
}

/* The symmetric matrix of edges low[e] < high[e], which are distinct and sorted by low, then high, as CSR with
   ascending columns. start holds rows + 1 zeros. weight may be NULL: all entries are 1. If edges have another
   form, the function returns 1 and the outputs are unusable. */
int fedepd_adjacency(int64_t rows, int64_t edges, const int64_t *restrict low, const int64_t *restrict high,
                     const float *restrict weight, int32_t *restrict start, int32_t *restrict index,
                     float *restrict value) {
    for (int64_t e = 0; e < edges; e++) {
        if (low[e] < 0 || high[e] <= low[e] || high[e] >= rows) return 1;
        if (e && (low[e] < low[e - 1] || (low[e] == low[e - 1] && high[e] <= high[e - 1]))) return 1;
        start[low[e] + 1]++;
        start[high[e] + 1]++;
    }
    begin_rows(rows, start);
    for (int upper = 0; upper < 2; upper++) /* a row's lower neighbours first, then its higher ones */
        for (int64_t e = 0; e < edges; e++) {
            const int32_t at = start[upper ? low[e] : high[e]]++;
            index[at] = (int32_t)(upper ? high[e] : low[e]);
            value[at] = weight ? weight[e] : 1.0f;
        }
    rewind_rows(rows, start);
    return 0;
}

/* The transpose of a CSR matrix. to_start holds columns + 1 zeros. */
void fedepd_transpose(int64_t rows, int64_t columns, const int32_t *restrict start,
                      const int32_t *restrict index, const float *restrict value, int32_t *restrict to_start,
                      int32_t *restrict to_index, float *restrict to_value) {
    for (int32_t e = 0; e < start[rows]; e++) to_start[index[e] + 1]++;
    begin_rows(columns, to_start);
    for (int64_t r = 0; r < rows; r++)
        for (int32_t e = start[r]; e < start[r + 1]; e++) {
            const int32_t at = to_start[index[e]]++;
            to_index[at] = (int32_t)r;
            to_value[at] = value[e];
        }
    rewind_rows(columns, to_start);
}

/* D^-1/2 (A + I) D^-1/2 of a 0/1 matrix A, as CSR; scale holds D^-1/2. If an entry of A is not 1, if it stands
   on the diagonal, or if the columns of a row do not ascend, the function returns 1 and the outputs are
   unusable. */
int fedepd_normalised(int64_t rows, const int32_t *restrict start, const int32_t *restrict index,
                      const float *restrict value, const double *restrict scale, int32_t *restrict to_start,
                      int32_t *restrict to_index, float *restrict to_value) {
    int32_t at = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t last = -1;
        to_start[r] = at;
        for (int32_t e = start[r]; e <= start[r + 1]; e++) {
            const int ended = e == start[r + 1];
            const int64_t column = ended ? rows : index[e];
            if (!ended && (value[e] != 1.0f || column <= last || column == r || column >= rows)) return 1;
            if (last < r && r < column) { /* the self-loop's place */
                to_index[at] = (int32_t)r;
                to_value[at++] = (float)(scale[r] * scale[r]);
            }
            if (ended) break;
            to_index[at] = (int32_t)column;
            to_value[at++] = (float)(scale[r] * scale[column]);
            last = column;
        }
    }
    to_start[rows] = at;
    return 0;
}

/* The chosen rows of a CSR matrix, in that order. to_start says where they begin. */
void fedepd_rows(int64_t count, const int64_t *restrict chosen, const int32_t *restrict start,
                 const int32_t *restrict index, const float *restrict value, const int32_t *restrict to_start,
                 int32_t *restrict to_index, float *restrict to_value) {
    for (int64_t r = 0; r < count; r++) {
        const size_t size = (size_t)(to_start[r + 1] - to_start[r]);
        memcpy(to_index + to_start[r], index + start[chosen[r]], size * sizeof(int32_t));
        memcpy(to_value + to_start[r], value + start[chosen[r]], size * sizeof(float));
    }
}

/* The size of a row of a tile in groups of QUAD, below `sizes`. */
static int32_t size_of(int32_t count, int32_t sizes) {
    const int32_t size = (count + QUAD - 1) / QUAD;
    return size < sizes ? size : sizes - 1;
}

/* The rows of a CSR matrix in tiles of TILE_HEIGHT columns, in the order in which they are multiplied: place
   t * rows + p of to_row holds a row of tile t. Of some rows at a time, those with as many entries stand
   beside each other, so that the processor guesses where a row ends. to_start says where their entries begin,
   in groups of QUAD. count holds tiles * rows zeros. It becomes where the entries of row r of tile t begin. */
void fedepd_tile_rows(int64_t rows, int64_t columns, const int32_t *restrict start,
                      const int32_t *restrict index, int32_t *restrict to_start, int32_t *restrict to_row,
                      int32_t *restrict count) {
    enum { SIZES = TILE_HEIGHT / QUAD + 1, TOGETHER = 1024 };
    for (int64_t r = 0; r < rows; r++)
        for (int32_t e = start[r]; e < start[r + 1]; e++) count[index[e] / TILE_HEIGHT * rows + r]++;
    for (int64_t left = 0; left < columns; left += TILE_HEIGHT) {
        for (int64_t top = 0; top < rows; top += TOGETHER) {
            const int64_t end = rows - top < TOGETHER ? rows : top + TOGETHER;
            int32_t begin[SIZES + 1] = {0};
            for (int64_t r = top; r < end; r++) begin[size_of(count[r], SIZES) + 1]++;
            begin_rows(SIZES, begin);
            for (int64_t r = top; r < end; r++) to_row[top + begin[size_of(count[r], SIZES)]++] = (int32_t)r;
        }
        for (int64_t p = 0; p < rows; p++) {
            int32_t *own = count + to_row[p];
            to_start[p + 1] = to_start[p] + (*own + QUAD - 1) / QUAD;
            *own = to_start[p] * QUAD;
        }
        count += rows, to_row += rows, to_start += rows;
    }
}

/* The entries in that order. place is what `count` became. What is left of a quad reads the row below the
   tile, times 1, and so does the last quad, which is read and not used. to_value holds ones, or is NULL. */
void fedepd_tiles(int64_t rows, int64_t quads, const int32_t *restrict start, const int32_t *restrict index,
                  const float *restrict value, int32_t *restrict place, uint64_t *restrict to_quad,
                  float *restrict to_value) {
    const uint64_t below = TILE_HEIGHT * STRIP_WIDTH * sizeof(float);
    for (int64_t q = 0; q < quads; q++) to_quad[q] = below << 48 | below << 32 | below << 16 | below;
    for (int64_t r = 0; r < rows; r++)
        for (int32_t e = start[r]; e < start[r + 1]; e++) {
            const int32_t at = place[index[e] / TILE_HEIGHT * rows + r]++;
            const uint64_t begin = (uint64_t)index[e] % TILE_HEIGHT * STRIP_WIDTH * sizeof(float);
            to_quad[at / QUAD] ^= (below ^ begin) << (16 * (at % QUAD));
            if (to_value) to_value[at] = value[e];
        }
}
