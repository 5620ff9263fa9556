#include "rt_softmax_s8.h"

#define RT_SOFTMAX_SATURATED 512 /* beyond every code, whatever the zero point */

/* numerator * 2^bits / denominator rounded half to even, at most RT_SOFTMAX_SATURATED: no division instruction or helper.
 * denominator < 2^31, numerator below three denominators. */
static int32_t rt_softmax_quotient(uint32_t numerator, uint32_t denominator, int32_t bits)
{
    int32_t quotient = 0;
    uint32_t rest = numerator;
    while (rest >= denominator) {
        rest -= denominator;
        ++quotient;
    }
    for (int32_t i = 0; i < bits; ++i) {
        rest <<= 1;
        quotient <<= 1;
        if (rest >= denominator) {
            rest -= denominator;
            ++quotient;
        }
        if (quotient >= RT_SOFTMAX_SATURATED)
            return RT_SOFTMAX_SATURATED;
    }
    rest <<= 1;
    return quotient + (int32_t)(rest > denominator || (rest == denominator && (quotient & 1) != 0));
}

static int32_t rt_largest(const int8_t *x, int32_t n)
{
    int32_t largest = -128;
    for (int32_t i = 0; i < n; ++i)
        if (x[i] > largest)
            largest = x[i];
    return largest;
}

static uint32_t rt_exponential_sum(const int8_t *x, int32_t n, int32_t largest, const uint32_t *table)
{
    uint32_t sum = 0;
    for (int32_t i = 0; i < n; ++i)
        sum += table[largest - x[i]];
    return sum;
}

void rt_softmax_s8(const int8_t *x, int32_t rows, int32_t n, const rt_softmax_t *p, int8_t *y)
{
    for (int32_t row = 0; row < rows; ++row, x += n, y += n) {
        int32_t largest = rt_largest(x, n);
        uint32_t sum = rt_exponential_sum(x, n, largest, p->table);
        /* sum * y scale without its last 16 bits: what one code of the output is worth */
        uint32_t unit = (sum >> 16) * p->scale_mantissa + (((sum & 0xFFFFu) * p->scale_mantissa) >> 16);
        for (int32_t i = 0; i < n; ++i) {
            int32_t code = rt_softmax_quotient(p->table[largest - x[i]], unit, p->quotient_bits) + p->zero_point;
            y[i] = rt_limit_s8(code, p->lo, p->hi);
        }
    }
}

/* ln(sum / 2^table_bits) / y scale: sum is multiplied up to a power of two by factors 1 + 2^-i whose logs are known. */
static int32_t rt_log_of_sum(uint32_t sum, const rt_log_softmax_t *p)
{
    int32_t doublings = 31 - p->table_bits;
    while (sum < 0x40000000u) {
        sum <<= 1;
        --doublings;
    }
    int32_t log = doublings * p->logs[0];
    for (int32_t i = 1; i <= RT_LOG_STEPS; ++i) {
        uint32_t next = sum + (sum >> i);
        if (next <= 0x80000000u) {
            sum = next;
            log -= p->logs[i];
        }
    }
    return log;
}

void rt_log_softmax_s8(const int8_t *x, int32_t rows, int32_t n, const rt_log_softmax_t *p, int8_t *y)
{
    int32_t half = (int32_t)1 << (p->shift - 1);
    for (int32_t row = 0; row < rows; ++row, x += n, y += n) {
        int32_t largest = rt_largest(x, n);
        int32_t log = rt_log_of_sum(rt_exponential_sum(x, n, largest, p->table), p);
        for (int32_t i = 0; i < n; ++i) {
            int32_t code = ((half - log - p->difference[largest - x[i]]) >> p->shift) + p->zero_point;
            y[i] = rt_limit_s8(code, p->lo, p->hi);
        }
    }
}
