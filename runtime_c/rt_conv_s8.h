/* rt_conv_s8.h - convolution of one output frame: any groups, depthwise included, one to three axes. */
#ifndef RT_CONV_S8_H
#define RT_CONV_S8_H

#include "rt_axis.h"
#include "rt_requantize.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RT_MOST_TAPS = 32 };

typedef struct {
    int32_t rows; /* taps along the stream axis */
    rt_axis_t depth, width;
    int32_t in_channels, out_channels;
    int32_t group_in, group_out; /* channels per group */
    int32_t y_depth, y_width;    /* elements of y from one output position to the next along each axis */
    int32_t zero_point;          /* of the input: what in-frame padding stands for */
    int32_t backwards;           /* from the last position to the first: y takes over memory of x from its end */
    int32_t tap_step;            /* depthwise with at most RT_MOST_TAPS taps: elements from tap to tap; else 0 */
    const void *weights;         /* int8 or int16 [out_channels][rows][depth][width][group_in]; with a tap_step
                                    [rows][depth][width][out_channels] */
    const int32_t *bias;         /* with -zero_point * sum(weights) folded in */
    rt_requant_t requantize;
} rt_conv_t;

/* rows: frames [depth][width][in_channels]; y: one frame [depth out][width out][out_channels]. */
void rt_conv_s8(const int8_t *const *rows, const rt_conv_t *c, int8_t *y);
/* The same with int16 weights (uint8 weights whose zero point leaves the int8 range). */
void rt_conv_s8_w16(const int8_t *const *rows, const rt_conv_t *c, int8_t *y);
/* The accumulators themselves; `requantize` is not used. */
void rt_conv_acc_s8(const int8_t *const *rows, const rt_conv_t *c, int32_t *y);
void rt_conv_acc_s8_w16(const int8_t *const *rows, const rt_conv_t *c, int32_t *y);

#ifdef __cplusplus
}
#endif

#endif
