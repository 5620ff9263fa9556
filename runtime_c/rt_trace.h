/* rt_trace.h - observation: every value of every stage as it is computed. Without RT_TRACE nothing of it is compiled.
 *
 * In a generated folder RT_TRACE is <NAME>_TRACE: compile everything with -D<NAME>_TRACE, or build with --trace. Point
 * rt_trace_to at a buffer, push, read the records. A record names its value by place: element e of a node's output since
 * the node's last RT_TICK record, which says how many frames of how many elements follow. One buffer per program. */
#ifndef RT_TRACE_H
#define RT_TRACE_H

#include "rt.h"

/* #define RT_TRACE 1 */

#ifdef RT_TRACE

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RT_TICK = 0,        /* a node begins: element = elements per frame, value = frames */
    RT_ACCUMULATOR = 1, /* int32 before rounding, zero points removed */
    RT_REQUANTIZED = 2, /* code before the bounds of a fused Relu or Clip */
    RT_ACTIVATED = 3,   /* code as written */
    RT_POOLED = 4       /* code as written by a pool */
};

typedef struct {
    int32_t node, stage, element, value;
} rt_record_t;

typedef struct {
    rt_record_t *records;
    int32_t capacity;
    int32_t count; /* records so far; those beyond the capacity are counted and lost */
} rt_trace_t;

/* Where records go from now on; NULL: nowhere. */
void rt_trace_to(rt_trace_t *trace);

/* A node is about to write `frames` frames of `elements` elements to y. */
void rt_trace_begin(int32_t node, const void *y, int32_t element_bytes, int32_t elements, int32_t frames);
/* The values that follow belong to this element of y. */
void rt_trace_place(const void *y);
void rt_trace_value(int32_t stage, int32_t value);
/* All elements of y, as they are now. */
void rt_trace_end(int32_t stage);

#ifdef __cplusplus
}
#endif

#define RT_TRACE_BEGIN(node, y, elements, frames) \
    rt_trace_begin((node), (y), (int32_t)sizeof *(y), (elements), (frames))
#define RT_TRACE_PLACE(y) rt_trace_place(y)
#define RT_TRACE_VALUE(stage, value) rt_trace_value((stage), (value))
#define RT_TRACE_END(stage) rt_trace_end(stage)

#else

#define RT_TRACE_BEGIN(node, y, elements, frames) ((void)0)
#define RT_TRACE_PLACE(y) ((void)0)
#define RT_TRACE_VALUE(stage, value) ((void)0)
#define RT_TRACE_END(stage) ((void)0)

#endif

#endif
