/* rt_einsum_s8.h - one step of an einsum of three and more operands: sums of products of int8 and int16 operands.
 *
 * Between steps results are int16: (sum + 2^(shift - 1)) >> shift. The build has checked that no sum leaves int32 and no
 * result int16 (codegen/ops/einsum.py, EinsumS8). */
#ifndef RT_EINSUM_S8_H
#define RT_EINSUM_S8_H

#include "rt_matmul_s8.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int32_t out_loops, summed_loops; /* 1..RT_MATMUL_LOOPS each, outermost first */
    const rt_matmul_loop_t *out, *summed;
    int32_t outputs;        /* product of the out sizes */
    int32_t a_zero, b_zero; /* zero points of int8 operands */
    uint8_t a_wide, b_wide; /* 1: int16, an earlier step's result */
    uint8_t shift;
} rt_einsum_step_t;

/* A step between. */
void rt_einsum_step_s8(const void *a, const void *b, const rt_einsum_step_t *p, int16_t *y);
/* The last step: codes. */
void rt_einsum_s8(const void *a, const void *b, const rt_einsum_step_t *p, const rt_requant_t *requantize, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
