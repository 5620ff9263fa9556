/* rt_matmul_s8.h - sums of products of two int8 frames, along any axes of either: MatMul and two-operand Einsum.
 *
 * A loop nest: `out` loops give the outputs in order, `summed` loops the products of each. Transposed, diagonal and
 * repeated (step 0) operands differ in steps only. */
#ifndef RT_MATMUL_S8_H
#define RT_MATMUL_S8_H

#include "rt_requantize.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RT_MATMUL_LOOPS 8

typedef struct {
    int32_t size;
    int32_t a, b;    /* elements from one pass to the next */
    int32_t channel; /* likewise, of the channel that picks scale and bias; 0 in summed loops */
} rt_matmul_loop_t;

typedef struct {
    int32_t out_loops, summed_loops; /* 1..RT_MATMUL_LOOPS each, outermost first */
    const rt_matmul_loop_t *out, *summed;
    int32_t outputs;        /* product of the out sizes */
    int32_t a_zero, b_zero; /* zero points; the build has checked that no sum leaves int32 */
    rt_requant_t requantize;
} rt_matmul_t;

/* Where a nest stands: elements of a and b, and the channel. */
typedef struct {
    int32_t a, b, channel;
} rt_matmul_at_t;

/* The next pass of loops 0 .. count - 1, the last one fastest. Returns 0 after the last pass. */
static inline int rt_matmul_next(const rt_matmul_loop_t *loops, int32_t count, int32_t *passes, rt_matmul_at_t *at)
{
    for (int32_t i = count - 1; i >= 0; --i) {
        const rt_matmul_loop_t *loop = &loops[i];
        at->a += loop->a;
        at->b += loop->b;
        at->channel += loop->channel;
        if (++passes[i] < loop->size)
            return 1;
        passes[i] = 0;
        at->a -= loop->size * loop->a;
        at->b -= loop->size * loop->b;
        at->channel -= loop->size * loop->channel;
    }
    return 0;
}

void rt_matmul_s8(const int8_t *a, const int8_t *b, const rt_matmul_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
