#include "rt_avgpool_s8.h"

/* Taps of one axis that the divisor counts. */
static int32_t rt_cells(const rt_axis_t *a, int32_t at, const rt_range_t *counts)
{
    int32_t cells = 0;
    for (int32_t i = 0; i < a->taps; ++i) {
        const int32_t index = at + i * a->dilation;
        cells += index >= counts->first && index < counts->end;
    }
    return cells;
}

/* Sum of code - zero point over the cells of one window that exist. */
static int32_t rt_window_sum(const int8_t *const *rows, const rt_avgpool_t *p, int32_t d, int32_t x, int32_t channel)
{
    int32_t sum = 0;
    for (int32_t t = 0; t < p->rows; ++t) {
        if (rows[t] == NULL)
            continue;
        for (int32_t i = 0; i < p->depth.taps; ++i) {
            const int32_t at_d = d + i * p->depth.dilation;
            if (at_d < 0 || at_d >= p->depth.size)
                continue;
            for (int32_t j = 0; j < p->width.taps; ++j) {
                const int32_t at_x = x + j * p->width.dilation;
                if (at_x >= 0 && at_x < p->width.size)
                    sum += rows[t][(at_d * p->width.size + at_x) * p->in_channels + channel] - p->zero_point;
            }
        }
    }
    return sum;
}

void rt_avgpool_s8(const int8_t *const *rows, int32_t row_count, const rt_avgpool_t *p, int8_t *y)
{
    for (int32_t i = 0; i < p->depth.out; ++i) {
        const int32_t d = rt_output(&p->depth, i, p->backwards);
        const int32_t at_d = d * p->depth.stride - p->depth.before;
        const int32_t cells = row_count * rt_cells(&p->depth, at_d, &p->depth_counts);
        for (int32_t j = 0; j < p->width.out; ++j) {
            const int32_t x = rt_output(&p->width, j, p->backwards);
            const int32_t at_x = x * p->width.stride - p->width.before;
            const int32_t count = cells * rt_cells(&p->width, at_x, &p->width_counts);
            const rt_divisor_t *divisor = p->divisors;
            int8_t *out = y + d * p->y_depth + x * p->y_width;
            while (divisor->count != count && divisor < p->divisors + p->divisor_count - 1)
                ++divisor;
            for (int32_t c = 0; c < p->channels; ++c) {
                RT_TRACE_PLACE(out);
                *out++ = rt_linear_s8(rt_window_sum(rows, p, at_d, at_x, c), &divisor->divide);
            }
        }
    }
}
