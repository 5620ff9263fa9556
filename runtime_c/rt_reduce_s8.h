/* rt_reduce_s8.h - running reductions of frames [outer][n][inner] over n, and over as many frames as come. */
#ifndef RT_REDUCE_S8_H
#define RT_REDUCE_S8_H

#include "rt_requantize.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int32_t outer, n, inner;
} rt_block_t;

/* acc[outer][inner] += sum over n of x. */
void rt_sum_s8(const int8_t *x, const rt_block_t *b, int32_t *acc);
/* acc[outer][inner] -= sum over n of x: a frame leaves the window. */
void rt_unsum_s8(const int8_t *x, const rt_block_t *b, int32_t *acc);
/* best[outer][inner] = max(best, x + 128); with flip -1 the minimum: max(best, 127 - x). 0 is below every code. */
void rt_best_s8(const int8_t *x, const rt_block_t *b, int32_t flip, uint8_t *best);
/* Codes of the best: y = best - 128, or 127 - best with flip -1. */
void rt_best_codes_s8(const uint8_t *best, int32_t n, int32_t flip, int8_t *y);

/* Means of accumulated sums: `offset` (count * zero point) comes off, one scale for all. */
void rt_mean_codes_s8(const int32_t *acc, int32_t n, int32_t offset, const rt_requant_t *q, int8_t *y);
/* The same with an exact ratio. */
void rt_average_codes_s8(const int32_t *acc, int32_t n, int32_t offset, const rt_linear_t *p, int8_t *y);

/* acc[o] += sum over k of weights[o][k] * x[k]: one frame's part of a product over a whole sequence. */
void rt_dense_accumulate_s8(const int8_t *x, const int8_t *weights, int32_t outputs, int32_t n, int32_t *acc);
/* The same with int16 weights. */
void rt_dense_accumulate_s8_w16(const int8_t *x, const int16_t *weights, int32_t outputs, int32_t n, int32_t *acc);
/* y[o] = requantize(bias[o] + acc[o]). */
void rt_dense_codes_s8(const int32_t *acc, const int32_t *bias, int32_t outputs, const rt_requant_t *q, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
