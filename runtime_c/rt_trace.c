#include "rt_trace.h"

#ifdef RT_TRACE

/* The node that is running. */
static struct {
    rt_trace_t *trace;
    const void *y, *place;
    int32_t node, element_bytes, count;
} rt_now;

void rt_trace_to(rt_trace_t *trace)
{
    rt_now.trace = trace;
    rt_now.y = NULL;
    rt_now.place = NULL;
}

static void rt_record(int32_t stage, int32_t element, int32_t value)
{
    rt_trace_t *t = rt_now.trace;
    if (t == NULL || t->count == INT32_MAX)
        return;
    if (t->count < t->capacity) {
        const rt_record_t record = {rt_now.node, stage, element, value};
        t->records[t->count] = record;
    }
    ++t->count;
}

void rt_trace_begin(int32_t node, const void *y, int32_t element_bytes, int32_t elements, int32_t frames)
{
    rt_now.node = node;
    rt_now.y = y;
    rt_now.place = NULL;
    rt_now.element_bytes = element_bytes;
    rt_now.count = frames * elements;
    if (frames > 0)
        rt_record(RT_TICK, elements, frames);
}

void rt_trace_place(const void *y)
{
    rt_now.place = y;
}

void rt_trace_value(int32_t stage, int32_t value)
{
    if (rt_now.place == NULL)
        return;
    const int32_t bytes = (int32_t)((const int8_t *)rt_now.place - (const int8_t *)rt_now.y);
    rt_record(stage, rt_now.element_bytes == 1 ? bytes : bytes >> 2, value);
}

void rt_trace_end(int32_t stage)
{
    for (int32_t i = 0; i < rt_now.count; ++i)
        rt_record(stage, i, rt_now.element_bytes == 1 ? ((const int8_t *)rt_now.y)[i] : ((const int32_t *)rt_now.y)[i]);
    rt_now.place = NULL;
}

#endif
