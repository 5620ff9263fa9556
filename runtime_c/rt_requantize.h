/* rt_requantize.h - int32 accumulator -> int8 code, equal to the float32 reference for every accumulator.
 *
 * Reference (codegen/numerics/reference.py): v = f32(f32(acc) * S); code = clamp(rint(v) + zero point, lo, hi), rint to
 * even. Here p = floor((acc << k) * M / 2^32) + R is the code in fixed point with s fraction bits, zero point and rounding
 * included, and the forms differ in how they treat boundaries. The generator proves its choice, layer by layer, for every
 * accumulator that can occur (codegen/numerics/prover.py); a constant channel has M = 0. */
#ifndef RT_REQUANTIZE_H
#define RT_REQUANTIZE_H

#include "rt.h"
#include "rt_target.h"
#include "rt_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RT_FORM_E = 0, /* emulates the reference: always right, slow */
    RT_FORM_A = 1, /* multiply, round, shift */
    RT_FORM_B = 2, /* A, and odd cells end later than even ones: ties to even */
    RT_FORM_F = 3  /* A, and E where p lies just above a boundary */
};

/* One layer's constants. Arrays have one entry per output channel; a form that does not name one leaves it NULL. */
typedef struct {
    const int32_t *multiplier;  /* A, B, F: M, 0 <= M < 2^31 */
    const int32_t *rounding;    /* A, B, F: R; E: the zero point, or the code of a constant channel */
    const uint8_t *left_shift;  /* A, B, F: k, 0..31 */
    const int32_t *parity;      /* B: D * 2^(32 - s), D what even and odd boundaries differ by */
    const uint32_t *scale_bits; /* E, F: float32 bits of S as an integer; 0 in a constant channel */
    int32_t window;             /* F: mask of the fraction bits that are all 0 just above a boundary */
    int32_t flip;               /* B: 0, or -1 where the zero point is odd */
    int32_t zero_point;
    int8_t lo, hi;       /* bounds of the code: int8 range, Relu and Clip */
    uint8_t right_shift; /* s, 1..22 */
    uint8_t form;
} rt_requant_t;

/* rint(f32(f32(acc) * S)) for the float32 S with these bits (positive and normal, or 0 -> 0); saturates to int32. */
int32_t rt_requantize_exact(int32_t acc, uint32_t scale_bits);

/* rt_requantize_exact plus an int8 offset; saturates far outside the code range. */
int32_t rt_requantize_slow(int32_t acc, uint32_t scale_bits, int32_t offset);

/* The forms below give the code before its bounds: apply rt_saturate_s8 (full int8 range) or rt_limit_s8. */

static inline int32_t rt_form_a(int32_t acc, int32_t m, int32_t r, uint32_t k, uint32_t s)
{
    return rt_add_mulhi(r, rt_shift_left(acc, k), m) >> s;
}

static inline int32_t rt_form_b(int32_t acc, int32_t m, int32_t r, int32_t parity, uint32_t k, uint32_t s, int32_t flip)
{
    int32_t p = rt_add_mulhi(r, rt_shift_left(acc, k), m);
    int32_t odd = (p ^ flip) & (int32_t)((uint32_t)1 << s);
    return rt_sub_where(p, odd, parity, s) >> s;
}

static inline int32_t rt_form_f(int32_t acc, int32_t m, int32_t r, uint32_t k, uint32_t s, int32_t window,
                                uint32_t scale_bits, int32_t zero_point)
{
    int32_t p = rt_add_mulhi(r, rt_shift_left(acc, k), m);
    if ((p & window) == 0)
        return rt_requantize_slow(acc, scale_bits, zero_point);
    return p >> s;
}

/* The output code of one accumulator, whatever the form. */
static inline int8_t rt_requantize_s8(int32_t acc, const rt_requant_t *q, int32_t channel)
{
    int32_t c = channel, r = q->rounding[c], code;
    if (q->form == RT_FORM_A)
        code = rt_form_a(acc, q->multiplier[c], r, q->left_shift[c], q->right_shift);
    else if (q->form == RT_FORM_B)
        code = rt_form_b(acc, q->multiplier[c], r, q->parity[c], q->left_shift[c], q->right_shift, q->flip);
    else if (q->form == RT_FORM_F)
        code = rt_form_f(acc, q->multiplier[c], r, q->left_shift[c], q->right_shift, q->window, q->scale_bits[c],
                         q->zero_point);
    else
        code = rt_requantize_slow(acc, q->scale_bits[c], r);
    RT_TRACE_VALUE(RT_ACCUMULATOR, acc);
    RT_TRACE_VALUE(RT_REQUANTIZED, rt_saturate_s8(code));
    return rt_limit_s8(code, q->lo, q->hi);
}

/* The codes of `count` neighbouring channels from `first` on: the form is chosen once. */
void rt_requantize_block_s8(const int32_t *acc, const rt_requant_t *q, int32_t first, int32_t count, int8_t *y);

/* An input whose code a form misses. */
typedef struct {
    int32_t input;
    int8_t code;
} rt_exception_t;

/* An integer times an exact ratio, rounded half to even: form B on one channel, D = 0 where A is enough. The build has
 * checked every input that can occur (codegen/numerics/linear.py); exceptions are all but unheard of. */
typedef struct {
    int32_t multiplier, rounding, parity, flip;
    const rt_exception_t *exceptions;
    int32_t exception_count;
    int8_t lo, hi;
    uint8_t left_shift, right_shift;
} rt_linear_t;

static inline int8_t rt_linear_s8(int32_t x, const rt_linear_t *p)
{
    int32_t code = rt_form_b(x, p->multiplier, p->rounding, p->parity, p->left_shift, p->right_shift, p->flip);
    for (int32_t i = 0; i < p->exception_count; ++i)
        if (p->exceptions[i].input == x)
            code = p->exceptions[i].code;
    RT_TRACE_VALUE(RT_ACCUMULATOR, x);
    RT_TRACE_VALUE(RT_REQUANTIZED, rt_saturate_s8(code));
    return rt_limit_s8(code, p->lo, p->hi);
}

#ifdef __cplusplus
}
#endif

#endif
