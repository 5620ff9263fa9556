/* rt_stream.h - frames of one tensor as its readers see them: history, the frames of this tick, and padding.
 *
 * Frame indices count from the start of the clip, or from a whole number of periods later: only differences matter. */
#ifndef RT_STREAM_H
#define RT_STREAM_H

#include "rt_axis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RT_NOWHERE = 0xFFFF };

typedef struct {
    const int8_t *history; /* frames of earlier ticks: the newest, in a ring of `slots` frames, or where `at` says */
    const int8_t *fresh;   /* frames of this tick, in order */
    const int8_t *pad;     /* a frame of padding; may be NULL where no reader looks outside the sequence */
    int32_t first;         /* index of fresh[0] */
    int32_t length;        /* frames in the sequence; INT32_MAX while its end is unknown */
    int32_t bytes;         /* per frame */
    int32_t slots;         /* frames in the ring */
    int32_t head;          /* slot after the newest frame of the ring */
    const uint16_t *at;    /* byte offset of every frame from `history` on; NULL: a ring */
} rt_stream_t;

/* The frame with this index. Readers may ask for the last `slots` frames before `first`, fresh frames and padding. */
const int8_t *rt_frame(const rt_stream_t *s, int32_t index);

/* Row pointers of a window: rows[t] = frame first + t * dilation, for `taps` taps. */
void rt_frames(const rt_stream_t *s, int32_t first, int32_t taps, int32_t dilation, const int8_t **rows);

/* Keep the newest of `count` fresh frames in a ring of `slots` frames; returns the new head. */
uint16_t rt_commit(int8_t *history, int32_t slots, uint16_t head, const int8_t *fresh, int32_t count, int32_t bytes);

/* Keep fresh frames from .. to - 1 at their offsets; RT_NOWHERE: nobody needs the frame any more. */
void rt_keep_rows(int8_t *base, const uint16_t *at, const int8_t *fresh, int32_t from, int32_t to, int32_t bytes);

/* memcpy that may have nothing to copy, from and to pointers that are NULL then. */
static inline void rt_copy_bytes(void *to, const void *from, int32_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
}

/* Flip the sign bit of n codes: uint8 of the model's border <-> int8 inside. dst may be src. */
void rt_flip_s8(const int8_t *src, int32_t n, int8_t *dst);

/* floor(x / d) for d > 0. Targets without a divide instruction would call a library routine for `/`. */
static inline int32_t rt_floor_div(int32_t x, int32_t d)
{
#if !defined(__arm__) || defined(__ARM_FEATURE_IDIV)
    return x / d - (int32_t)(x % d < 0);
#else
    uint32_t rest = (uint32_t)(x < 0 ? -(x + 1) : x), quotient = 0, divisor = (uint32_t)d, bit = 1;
    while (divisor <= rest >> 1) {
        divisor <<= 1;
        bit <<= 1;
    }
    for (; bit != 0; bit >>= 1, divisor >>= 1)
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= bit;
        }
    return x < 0 ? -(int32_t)quotient - 1 : (int32_t)quotient;
#endif
}

/* value limited to 0..limit */
static inline int32_t rt_clip(int32_t value, int32_t limit)
{
    return value < 0 ? 0 : rt_min(value, limit);
}

#ifdef __cplusplus
}
#endif

#endif
