/* rt_axis.h - one axis of a window inside a frame; the stream axis comes as row pointers. */
#ifndef RT_AXIS_H
#define RT_AXIS_H

#include "rt.h"

typedef struct {
    int32_t size, out, taps, stride, dilation, before;
} rt_axis_t;

#endif
