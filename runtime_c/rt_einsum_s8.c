#include "rt_einsum_s8.h"

static int32_t rt_element(const void *from, int32_t index, uint8_t wide)
{
    return wide ? ((const int16_t *)from)[index] : ((const int8_t *)from)[index];
}

static int32_t rt_einsum_sum(const void *a, const void *b, const rt_einsum_step_t *p, rt_matmul_at_t at)
{
    int32_t passes[RT_MATMUL_LOOPS] = {0};
    int32_t sum = 0;
    do
        sum += (rt_element(a, at.a, p->a_wide) - p->a_zero) * (rt_element(b, at.b, p->b_wide) - p->b_zero);
    while (rt_matmul_next(p->summed, p->summed_loops, passes, &at));
    return sum;
}

void rt_einsum_step_s8(const void *a, const void *b, const rt_einsum_step_t *p, int16_t *y)
{
    int32_t passes[RT_MATMUL_LOOPS] = {0};
    rt_matmul_at_t at = {0, 0, 0};
    const int32_t half = ((int32_t)1 << p->shift) >> 1;
    for (int32_t i = 0; i < p->outputs; ++i) {
        y[i] = (int16_t)((rt_einsum_sum(a, b, p, at) + half) >> p->shift);
        (void)rt_matmul_next(p->out, p->out_loops, passes, &at);
    }
}

void rt_einsum_s8(const void *a, const void *b, const rt_einsum_step_t *p, const rt_requant_t *requantize, int8_t *y)
{
    int32_t passes[RT_MATMUL_LOOPS] = {0};
    rt_matmul_at_t at = {0, 0, 0};
    for (int32_t i = 0; i < p->outputs; ++i) {
        RT_TRACE_PLACE(&y[i]);
        y[i] = rt_requantize_s8(rt_einsum_sum(a, b, p, at), requantize, 0);
        (void)rt_matmul_next(p->out, p->out_loops, passes, &at);
    }
}
