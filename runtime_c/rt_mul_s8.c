#include "rt_mul_s8.h"

void rt_mul_s8(const int8_t *a, const int8_t *b, int32_t n, const rt_mul_t *p, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i) {
        RT_TRACE_PLACE(&y[i]);
        y[i] = rt_linear_s8((a[i] - p->zero_a) * (b[i] - p->zero_b), &p->linear);
    }
}
