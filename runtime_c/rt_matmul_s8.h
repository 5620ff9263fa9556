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

void rt_matmul_s8(const int8_t *a, const int8_t *b, const rt_matmul_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
