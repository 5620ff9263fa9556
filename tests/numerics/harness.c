/* Array versions of the inline runtime functions, for cffi. */
#include "harness.h"

void many_exact(const int32_t *acc, const uint32_t *bits, int32_t n, int32_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = rt_requantize_exact(acc[i], bits[i]);
}

void many_requantize(const int32_t *acc, int32_t n, const rt_requant_t *q, int32_t channel, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = rt_requantize_s8(acc[i], q, channel);
}

void many_add_mulhi(const int32_t *sum, const int32_t *a, const int32_t *m, int32_t n, int32_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = rt_add_mulhi(sum[i], a[i], m[i]);
}

void many_linear(const int32_t *x, int32_t n, const rt_linear_t *p, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = rt_linear_s8(x[i], p);
}
