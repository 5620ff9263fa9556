/* rt_mul_s8.h - product of two tensors: the exact real product of the two values, rounded once, half to even. */
#ifndef RT_MUL_S8_H
#define RT_MUL_S8_H

#include "rt_requantize.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int32_t zero_a, zero_b;
    rt_linear_t linear;
} rt_mul_t;

/* y[i] = a[i] * b[i] for n codes; y may be a or b. */
void rt_mul_s8(const int8_t *a, const int8_t *b, int32_t n, const rt_mul_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
