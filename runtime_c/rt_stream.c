#include "rt_stream.h"

const int8_t *rt_frame(const rt_stream_t *s, int32_t index)
{
    if (index < 0 || index >= s->length)
        return s->pad;
    if (index >= s->first)
        return s->fresh + (index - s->first) * s->bytes;
    if (s->at != NULL)
        return s->history + s->at[index];
    int32_t slot = s->head - (s->first - index);
    if (slot < 0)
        slot += s->slots;
    return s->history + slot * s->bytes;
}

void rt_frames(const rt_stream_t *s, int32_t first, int32_t taps, int32_t dilation, const int8_t **rows)
{
    for (int32_t t = 0; t < taps; ++t)
        rows[t] = rt_frame(s, first + t * dilation);
}

uint16_t rt_commit(int8_t *history, int32_t slots, uint16_t head, const int8_t *fresh, int32_t count, int32_t bytes)
{
    int32_t slot = head;
    if (count > slots) { /* only the newest survive */
        fresh += (count - slots) * bytes;
        count = slots;
    }
    for (; count > 0; --count, fresh += bytes) {
        memcpy(history + slot * bytes, fresh, (size_t)bytes);
        if (++slot == slots)
            slot = 0;
    }
    return (uint16_t)slot;
}

void rt_keep_rows(int8_t *base, const uint16_t *at, const int8_t *fresh, int32_t from, int32_t to, int32_t bytes)
{
    for (int32_t j = from; j < to; ++j, fresh += bytes)
        if (at[j] != RT_NOWHERE)
            memcpy(base + at[j], fresh, (size_t)bytes);
}

void rt_flip_s8(const int8_t *src, int32_t n, int8_t *dst)
{
    for (int32_t i = 0; i < n; ++i)
        dst[i] = (int8_t)(src[i] ^ -128);
}
