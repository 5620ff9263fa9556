#include "rt_requantize.h"

/* Rounds half to even: high + (rest / 2^bits), 0 <= rest < 2^bits, 1 <= bits <= 31. */
static uint32_t rt_round_even(uint32_t high, uint32_t rest, uint32_t bits)
{
    uint32_t half = (uint32_t)1 << (bits - 1);
    return high + (uint32_t)(rest > half || (rest == half && (high & 1u) != 0));
}

/* a = |acc| > 0 as significand * 2^exponent, 2^23 <= significand <= 2^24: what the conversion to float32 keeps. */
static uint32_t rt_to_float24(uint32_t a, int32_t *exponent)
{
    int32_t e = 0;
    if (a >> 24) { /* 1 to 8 bits too many: round them off */
        uint32_t drop = 1;
        while (drop < 8 && (a >> (24 + drop)) != 0)
            ++drop;
        *exponent = (int32_t)drop;
        return rt_round_even(a >> drop, a & (((uint32_t)1 << drop) - 1u), drop);
    }
    for (uint32_t step = 16; step != 0; step >>= 1) { /* binary search: no count-leading-zeros on Cortex-M0+ */
        if (!(a >> (24 - step))) {
            a <<= step;
            e -= (int32_t)step;
        }
    }
    *exponent = e;
    return a;
}

/* Product of two significands (2^23..2^24) rounded to 24 bits, as significand * 2^(24 + *extra). Halves of 12 bits keep
 * every partial product in 32 bits: no 64-bit helper is linked. */
static uint32_t rt_multiply_float24(uint32_t a, uint32_t m, int32_t *extra)
{
    uint32_t a_hi = a >> 12, a_lo = a & 0xFFFu, m_hi = m >> 12, m_lo = m & 0xFFFu;
    uint32_t middle = a_hi * m_lo + a_lo * m_hi;
    uint32_t low = a_lo * m_lo + ((middle & 0xFFFu) << 12);
    uint32_t high = a_hi * m_hi + (middle >> 12) + (low >> 24);
    low &= 0xFFFFFFu;
    if (high >> 23) {
        *extra = 0;
        return rt_round_even(high, low, 24);
    }
    *extra = -1;
    return rt_round_even((high << 1) | (low >> 23), low & 0x7FFFFFu, 23);
}

/* value * 2^exponent rounded half to even to an integer, at most 2^31. value <= 2^24. */
static uint32_t rt_scale_to_integer(uint32_t value, int32_t exponent)
{
    if (exponent >= 0)
        return exponent > 7 || (value >> (31 - exponent)) != 0 ? 0x80000000u : value << exponent;
    if (exponent < -25)
        return 0; /* below one half; 2^24 * 2^-25 is a tie and still goes to 0 */
    uint32_t bits = (uint32_t)-exponent;
    return rt_round_even(value >> bits, value & (((uint32_t)1 << bits) - 1u), bits);
}

int32_t rt_requantize_exact(int32_t acc, uint32_t scale_bits)
{
    if (acc == 0 || scale_bits == 0)
        return 0;
    uint32_t mantissa = (scale_bits & 0x7FFFFFu) | 0x800000u;
    int32_t scale_exponent = (int32_t)(scale_bits >> 23) - 150;
    int32_t exponent, extra;
    uint32_t a = rt_to_float24(acc < 0 ? 0u - (uint32_t)acc : (uint32_t)acc, &exponent);
    uint32_t product = rt_multiply_float24(a, mantissa, &extra);
    uint32_t size = rt_scale_to_integer(product, exponent + scale_exponent + extra + 24);
    if (acc < 0)
        return size == 0x80000000u ? INT32_MIN : -(int32_t)size;
    return size == 0x80000000u ? INT32_MAX : (int32_t)size;
}

int32_t rt_requantize_slow(int32_t acc, uint32_t scale_bits, int32_t offset)
{
    int32_t value = rt_requantize_exact(acc, scale_bits);
    if (value < -0x10000)
        value = -0x10000; /* still saturates every code, and the sum cannot overflow */
    if (value > 0x10000)
        value = 0x10000;
    return value + offset;
}

/* One output: traced, and limited by saturation alone where the bounds are those of int8. */
static inline int8_t rt_finished(int32_t acc, int32_t code, const rt_requant_t *q, int32_t full, const int8_t *y)
{
    (void)acc;
    (void)y;
    RT_TRACE_PLACE(y);
    RT_TRACE_VALUE(RT_ACCUMULATOR, acc);
    RT_TRACE_VALUE(RT_REQUANTIZED, rt_saturate_s8(code));
    return full ? rt_saturate_s8(code) : rt_limit_s8(code, q->lo, q->hi);
}

void rt_requantize_block_s8(const int32_t *acc, const rt_requant_t *q, int32_t first, int32_t count, int8_t *y)
{
    const uint32_t s = q->right_shift;
    const int32_t full = q->lo == -128 && q->hi == 127;
    if (q->form == RT_FORM_A) {
        const int32_t *m = q->multiplier + first, *r = q->rounding + first;
        const uint8_t *k = q->left_shift + first;
        for (int32_t i = 0; i < count; ++i)
            y[i] = rt_finished(acc[i], rt_form_a(acc[i], m[i], r[i], k[i], s), q, full, &y[i]);
    } else if (q->form == RT_FORM_B) {
        const int32_t *m = q->multiplier + first, *r = q->rounding + first, *parity = q->parity + first;
        const uint8_t *k = q->left_shift + first;
        for (int32_t i = 0; i < count; ++i)
            y[i] = rt_finished(acc[i], rt_form_b(acc[i], m[i], r[i], parity[i], k[i], s, q->flip), q, full, &y[i]);
    } else if (q->form == RT_FORM_F) {
        const int32_t *m = q->multiplier + first, *r = q->rounding + first, window = q->window, zero = q->zero_point;
        const uint32_t *bits = q->scale_bits + first;
        const uint8_t *k = q->left_shift + first;
        for (int32_t i = 0; i < count; ++i) {
            const int32_t code = rt_form_f(acc[i], m[i], r[i], k[i], s, window, bits[i], zero);
            y[i] = rt_finished(acc[i], code, q, full, &y[i]);
        }
    } else {
        for (int32_t i = 0; i < count; ++i) {
            RT_TRACE_PLACE(&y[i]);
            y[i] = rt_requantize_s8(acc[i], q, first + i);
        }
    }
}
