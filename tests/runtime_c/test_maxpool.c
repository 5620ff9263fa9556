/* Largest code of a window over rows and over the width of a frame. */
#include "check.h"
#include "rt_maxpool_s8.h"

#define ONE                                                                     \
    {                                                                           \
        .size = 1, .out = 1, .taps = 1, .stride = 1, .dilation = 1, .before = 0 \
    }

static void over_rows(void)
{
    const int8_t a[3] = {1, -5, 127}, b[3] = {2, -6, -128};
    const int8_t *const rows[2] = {a, b};
    const rt_maxpool_t p = {.rows = 2, .depth = ONE, .width = ONE, .in_channels = 3, .channels = 3};
    int8_t y[3] = {0, 0, 0};
    rt_maxpool_s8(rows, &p, y);
    CHECK_CODES(y, 2, -5, 127);
}

static void padding_never_wins(void)
{
    const int8_t padding[2] = {-128, -128}, x[2] = {-128, -100};
    const int8_t *const rows[2] = {padding, x};
    const rt_maxpool_t p = {.rows = 2, .depth = ONE, .width = ONE, .in_channels = 2, .channels = 2};
    int8_t y[2] = {0, 0};
    rt_maxpool_s8(rows, &p, y);
    CHECK_CODES(y, -128, -100);
}

static void over_the_width(void)
{
    /* taps at 2x - 1 and 2x + 1 of five: (pad, 1), (1, 3), (3, pad) */
    const int8_t x[5] = {90, -9, 91, -4, 92};
    const int8_t *const rows[1] = {x};
    const rt_axis_t width = {.size = 5, .out = 3, .taps = 2, .stride = 2, .dilation = 2, .before = 1};
    const rt_maxpool_t p = {.rows = 1, .depth = ONE, .width = width, .in_channels = 1, .channels = 1, .y_width = 1};
    int8_t y[3] = {0, 0, 0};
    rt_maxpool_s8(rows, &p, y);
    CHECK_CODES(y, -9, -4, -4);
}

int main(void)
{
    over_rows();
    padding_never_wins();
    over_the_width();
    return check_result();
}
