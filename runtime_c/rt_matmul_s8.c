#include "rt_matmul_s8.h"

/* n products along one loop. */
static int32_t rt_matmul_line(const int8_t *a, const int8_t *b, const rt_matmul_loop_t *loop, const rt_matmul_t *p)
{
    const int32_t n = loop->size, step_a = loop->a, step_b = loop->b, a_zero = p->a_zero, b_zero = p->b_zero;
    int32_t sum = 0;
    if (step_a == 1 && step_b == 1) {
        for (int32_t i = 0; i < n; ++i)
            sum += (a[i] - a_zero) * (b[i] - b_zero);
        return sum;
    }
    for (int32_t i = 0; i < n; ++i)
        sum += (a[i * step_a] - a_zero) * (b[i * step_b] - b_zero);
    return sum;
}

static int32_t rt_matmul_sum(const int8_t *a, const int8_t *b, const rt_matmul_t *p)
{
    int32_t passes[RT_MATMUL_LOOPS] = {0};
    rt_matmul_at_t at = {0, 0, 0};
    const int32_t inner = p->summed_loops - 1;
    int32_t sum = 0;
    do
        sum += rt_matmul_line(a + at.a, b + at.b, &p->summed[inner], p);
    while (rt_matmul_next(p->summed, inner, passes, &at));
    return sum;
}

void rt_matmul_s8(const int8_t *a, const int8_t *b, const rt_matmul_t *p, int8_t *y)
{
    int32_t passes[RT_MATMUL_LOOPS] = {0};
    rt_matmul_at_t at = {0, 0, 0};
    for (int32_t i = 0; i < p->outputs; ++i) {
        RT_TRACE_PLACE(&y[i]);
        y[i] = rt_requantize_s8(rt_matmul_sum(a + at.a, b + at.b, p), &p->requantize, at.channel);
        (void)rt_matmul_next(p->out, p->out_loops, passes, &at);
    }
}
