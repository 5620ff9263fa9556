/* rt_avgpool_s8.h - average of each window of one output frame: exact sum, one division, half to even. */
#ifndef RT_AVGPOOL_S8_H
#define RT_AVGPOOL_S8_H

#include "rt_conv_s8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Division by `count` cells. */
typedef struct {
    int32_t count;
    rt_linear_t divide;
} rt_divisor_t;

typedef struct {
    int32_t rows; /* taps along the stream axis */
    rt_axis_t depth, width;
    int32_t depth_after, width_after; /* explicit padding behind the frame: it counts where `include_pad` */
    int32_t channels;
    int32_t zero_point;
    int32_t include_pad;
    const rt_divisor_t *divisors;
    int32_t divisor_count;
} rt_avgpool_t;

/* rows: frames [depth][width][channels], NULL for padding; row_count: rows that the divisor counts. */
void rt_avgpool_s8(const int8_t *const *rows, int32_t row_count, const rt_avgpool_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
