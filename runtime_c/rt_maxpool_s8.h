/* rt_maxpool_s8.h - largest code of each window of one output frame; padding never wins. */
#ifndef RT_MAXPOOL_S8_H
#define RT_MAXPOOL_S8_H

#include "rt_axis.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int32_t rows; /* taps along the stream axis */
    rt_axis_t depth, width;
    int32_t in_channels, channels; /* of a position of x, and those that are pooled */
    int32_t y_depth, y_width;      /* elements of y from one position to the next along each axis */
    int32_t backwards;             /* from the last position to the first */
} rt_maxpool_t;

/* rows: frames [depth][width][in_channels], padding frames hold -128; y: one frame [depth out][width out][channels]. */
void rt_maxpool_s8(const int8_t *const *rows, const rt_maxpool_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
