/* rt_axis.h - one axis of a window inside a frame; the stream axis comes as row pointers. */
#ifndef RT_AXIS_H
#define RT_AXIS_H

#include "rt.h"

typedef struct {
    int32_t size, out, taps, stride, dilation, before;
} rt_axis_t;

/* The axis of one position, seen by one tap. */
#define RT_ONE                                                                  \
    {                                                                           \
        .size = 1, .out = 1, .taps = 1, .stride = 1, .dilation = 1, .before = 0 \
    }

static inline int32_t rt_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Number `i` of the axis's outputs, from the first one or from the last one on. */
static inline int32_t rt_output(const rt_axis_t *a, int32_t i, int32_t backwards)
{
    return backwards ? a->out - 1 - i : i;
}

#endif
