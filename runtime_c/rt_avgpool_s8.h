/* rt_avgpool_s8.h - average of each window of one output frame: exact sum, one division, half to even. */
#ifndef RT_AVGPOOL_S8_H
#define RT_AVGPOOL_S8_H

#include "rt_axis.h"
#include "rt_requantize.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Division by `count` cells. */
typedef struct {
    int32_t count;
    rt_linear_t divide;
} rt_divisor_t;

/* Positions of an axis that the divisor counts: those of the frame, or with its explicit padding. */
typedef struct {
    int32_t first, end;
} rt_range_t;

typedef struct {
    int32_t rows; /* taps along the stream axis */
    rt_axis_t depth, width;
    rt_range_t depth_counts, width_counts;
    int32_t in_channels, channels; /* of a position of x, and those that are pooled */
    int32_t y_depth, y_width;      /* elements of y from one position to the next along each axis */
    int32_t backwards;             /* from the last position to the first */
    int32_t zero_point;
    const rt_divisor_t *divisors;
    int32_t divisor_count;
} rt_avgpool_t;

/* rows: frames [depth][width][in_channels], NULL for padding; row_count: rows that the divisor counts. */
void rt_avgpool_s8(const int8_t *const *rows, int32_t row_count, const rt_avgpool_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
