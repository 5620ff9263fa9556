#include "rt_maxpool_s8.h"

static void rt_maximum(const int8_t *x, int32_t n, int8_t *best)
{
    for (int32_t i = 0; i < n; ++i)
        if (x[i] > best[i])
            best[i] = x[i];
}

/* The window whose first tap is at (d, x). */
static void rt_largest_of(const int8_t *const *rows, const rt_maxpool_t *p, int32_t d, int32_t x, int8_t *y)
{
    memset(y, -128, (size_t)p->channels);
    for (int32_t i = 0; i < p->depth.taps; ++i) {
        const int32_t at_d = d + i * p->depth.dilation;
        if (at_d < 0 || at_d >= p->depth.size)
            continue;
        for (int32_t j = 0; j < p->width.taps; ++j) {
            const int32_t at_x = x + j * p->width.dilation;
            if (at_x < 0 || at_x >= p->width.size)
                continue;
            for (int32_t t = 0; t < p->rows; ++t)
                rt_maximum(rows[t] + (at_d * p->width.size + at_x) * p->in_channels, p->channels, y);
        }
    }
}

void rt_maxpool_s8(const int8_t *const *rows, const rt_maxpool_t *p, int8_t *y)
{
    for (int32_t i = 0; i < p->depth.out; ++i)
        for (int32_t j = 0; j < p->width.out; ++j) {
            const int32_t d = rt_output(&p->depth, i, p->backwards), x = rt_output(&p->width, j, p->backwards);
            rt_largest_of(rows, p, d * p->depth.stride - p->depth.before, x * p->width.stride - p->width.before,
                          y + d * p->y_depth + x * p->y_width);
        }
}
