/* rt_lut_s8.h - every unary operator and every rescaling copy: one table lookup per code. */
#ifndef RT_LUT_S8_H
#define RT_LUT_S8_H

#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] = table[x[i] + 128] for n codes; y may be x. */
void rt_lut_s8(const int8_t *x, int32_t n, const int8_t table[256], int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
