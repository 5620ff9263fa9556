/* rt_requantize.h - int32 accumulator -> int8 code, equal to the float32 reference for every accumulator.
 *
 * Reference (codegen/numerics/reference.py): v = f32(f32(acc) * S); code = clamp(rint(v) + zero point, lo, hi), rint to
 * even. S = mantissa * 2^-shift is a float32; here it is a bit pattern, no float arithmetic runs on the device. */
#ifndef RT_REQUANTIZE_H
#define RT_REQUANTIZE_H

#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a layer computes it; the generator proves its choice for every reachable accumulator. */
enum { RT_FORM_E = 0 /* emulate the reference: always right */ };

/* One layer's constants. Arrays have one entry per output channel. */
typedef struct {
    const uint32_t *scale_bits; /* float32 bits of S; 0: a constant channel */
    const int32_t *rounding;    /* form E: the zero point, or the code of a constant channel */
    int32_t zero_point;
    int8_t lo, hi; /* bounds of the code: int8 range, Relu and Clip */
    uint8_t form;
} rt_requant_t;

/* rint(f32(f32(acc) * S)) for the float32 S with these bits (positive and normal, or 0 -> 0); saturates to int32. */
int32_t rt_requantize_exact(int32_t acc, uint32_t scale_bits);

/* value + offset limited to lo..hi; value may be any int32. */
static inline int8_t rt_clamp_s8(int32_t value, int32_t offset, int32_t lo, int32_t hi)
{
    if (value < lo - offset)
        return (int8_t)lo;
    if (value > hi - offset)
        return (int8_t)hi;
    return (int8_t)(value + offset);
}

/* The output code of one accumulator. */
static inline int8_t rt_requantize_s8(int32_t acc, const rt_requant_t *q, int32_t channel)
{
    return rt_clamp_s8(rt_requantize_exact(acc, q->scale_bits[channel]), q->rounding[channel], q->lo, q->hi);
}

#ifdef __cplusplus
}
#endif

#endif
