#include "rt_add_s8.h"

#include "rt_trace.h"

#define RT_ADD_LOW_BITS 22

/* Two operands, one rounding, ties to even: int32 only. */
static void rt_add_narrow(const int8_t *a, const int8_t *b, int32_t n, const rt_add_t *p, int8_t *y)
{
    int32_t ma = p->a_high, mb = p->b_high, constant = p->constant_high, parity = p->parity;
    int32_t flip = p->flip, lo = p->lo, hi = p->hi;
    uint32_t shift = p->shift;
    for (int32_t i = 0; i < n; ++i) {
        int32_t sum = a[i] * ma + constant + b[i] * mb;
        if (((sum >> shift) ^ flip) & 1)
            sum -= parity;
        RT_TRACE_PLACE(&y[i]);
        RT_TRACE_VALUE(RT_REQUANTIZED, rt_saturate_s8(sum >> shift));
        y[i] = rt_limit_s8(sum >> shift, lo, hi);
    }
}

/* The code of one pair by the narrow form, before exceptions and bounds. */
static int32_t rt_add_one(int32_t a, int32_t b, const rt_add_t *p)
{
    int32_t sum = a * p->a_high + p->constant_high + b * p->b_high;
    if (((sum >> p->shift) ^ p->flip) & 1)
        sum -= p->parity;
    return sum >> p->shift;
}

/* The same by the wide form. */
static int32_t rt_add_wide(int32_t a, int32_t b, const rt_add_t *p)
{
    int32_t high = a * p->a_high + p->constant_high + b * p->b_high;
    int32_t low = a * p->a_low + b * p->b_low + p->constant_low;
    int32_t sum = high + (low >> RT_ADD_LOW_BITS);
    if (((sum >> p->shift) ^ p->flip) & 1)
        sum = high + ((low - p->parity) >> RT_ADD_LOW_BITS);
    return sum >> p->shift;
}

void rt_add_s8(const int8_t *a, const int8_t *b, int32_t n, const rt_add_t *p, int8_t *y)
{
    if (!p->wide && p->exception_count == 0) {
        rt_add_narrow(a, b, n, p, y);
        return;
    }
    for (int32_t i = 0; i < n; ++i) {
        int32_t first = a[i], second = b[i];
        int32_t code = p->wide ? rt_add_wide(first, second, p) : rt_add_one(first, second, p);
        code = rt_listed_code(first, second, code, p->exceptions, p->exception_count);
        RT_TRACE_PLACE(&y[i]);
        RT_TRACE_VALUE(RT_REQUANTIZED, rt_saturate_s8(code));
        y[i] = rt_limit_s8(code, p->lo, p->hi);
    }
}
