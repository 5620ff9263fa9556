/* Convolutions small enough to work by hand. */
#include "check.h"
#include "rt_conv_s8.h"

#define ONE                                                                     \
    {                                                                           \
        .size = 1, .out = 1, .taps = 1, .stride = 1, .dilation = 1, .before = 0 \
    }
#define HALF 0x3F000000u  /* bits of 0.5f */
#define WHOLE 0x3F800000u /* bits of 1.0f */

/* The form that emulates the reference: rint(acc * scale) + zero point. */
static rt_requant_t exact(const uint32_t *scale_bits, const int32_t *zero_points)
{
    rt_requant_t q = {.rounding = zero_points, .scale_bits = scale_bits, .lo = -128, .hi = 127, .form = RT_FORM_E};
    return q;
}

static void three_taps(void)
{
    /* x = (3, 5, 2) with zero point 1: real 2, 4, 1; w = (1, -2, 4).
     * 2*1 + 4*-2 + 1*4 = -2, bias 5: acc 3; 3 * 0.5 = 1.5 -> 2 (even), zero point 10: 12.
     * The bias of the kernel has -1 * (1 - 2 + 4) = -3 folded in: 2. */
    static const int8_t x0[1] = {3}, x1[1] = {5}, x2[1] = {2}, weights[3] = {1, -2, 4};
    static const int32_t zero_points[1] = {10};
    static const uint32_t scales[1] = {HALF};
    int32_t bias[1] = {2};
    rt_conv_t c = {
        .rows = 3, .depth = ONE, .width = ONE, .in_channels = 1, .out_channels = 1, .group_in = 1, .group_out = 1};
    c.zero_point = 1;
    c.weights = weights;
    c.bias = bias;
    c.requantize = exact(scales, zero_points);
    const int8_t *const rows[3] = {x0, x1, x2};
    int8_t y[1] = {0};
    rt_conv_s8(rows, &c, y);
    CHECK(y[0], 12);
    bias[0] = 4; /* acc 5; 2.5 -> 2 (even) */
    rt_conv_s8(rows, &c, y);
    CHECK(y[0], 12);
    bias[0] = -4; /* acc -3; -1.5 -> -2 */
    rt_conv_s8(rows, &c, y);
    CHECK(y[0], 8);
    bias[0] = 1000; /* saturates */
    rt_conv_s8(rows, &c, y);
    CHECK(y[0], 127);
    c.requantize.hi = 100; /* a Clip folded into the bounds */
    rt_conv_s8(rows, &c, y);
    CHECK(y[0], 100);
    /* frame padding is the zero point: real 0, so only the middle tap counts: 4*-2 + 5 = -3, -1.5 -> -2 */
    static const int8_t padding[1] = {1};
    const int8_t *const ends[3] = {padding, x1, padding};
    bias[0] = 2;
    rt_conv_s8(ends, &c, y);
    CHECK(y[0], 8);
}

static void groups_and_channels(void)
{
    /* two groups of two inputs, one output each: 1*1 + 2*10 = 21 and 3*-1 + 4*2 = 5 */
    static const int8_t x[4] = {1, 2, 3, 4}, weights[4] = {1, 10, -1, 2};
    static const int32_t zero_points[2] = {0, -3}, bias[2] = {0, 0};
    static const uint32_t scales[2] = {WHOLE, WHOLE};
    rt_conv_t c = {
        .rows = 1, .depth = ONE, .width = ONE, .in_channels = 4, .out_channels = 2, .group_in = 2, .group_out = 1};
    c.weights = weights;
    c.bias = bias;
    c.requantize = exact(scales, zero_points);
    const int8_t *const rows[1] = {x};
    int8_t y[2] = {0, 0};
    rt_conv_s8(rows, &c, y);
    CHECK_CODES(y, 21, 2);
}

static void padding_inside_the_frame(void)
{
    /* width 3, taps (1, 2, 3) around each of them, zero point 2: x real = (3, -1, 5).
     * (0,3,-1): 3;  (3,-1,5): 16;  (-1,5,0): 9. Folded into the bias: -2 * 6 = -12. */
    static const int8_t x[3] = {5, 1, 7}, weights[3] = {1, 2, 3};
    static const int32_t zero_points[1] = {0}, bias[1] = {-12};
    static const uint32_t scales[1] = {WHOLE};
    rt_conv_t c = {
        .rows = 1, .depth = ONE, .in_channels = 1, .out_channels = 1, .group_in = 1, .group_out = 1, .zero_point = 2};
    const rt_axis_t width = {.size = 3, .out = 3, .taps = 3, .stride = 1, .dilation = 1, .before = 1};
    c.width = width;
    c.y_width = 1;
    c.weights = weights;
    c.bias = bias;
    c.requantize = exact(scales, zero_points);
    const int8_t *const rows[1] = {x};
    int8_t y[3] = {0, 0, 0};
    rt_conv_s8(rows, &c, y);
    CHECK_CODES(y, 3, 16, 9);
}

static void wide_weights(void)
{
    /* 1*255 - 2*127 = 1 */
    static const int8_t x[2] = {1, -2};
    static const int16_t weights[2] = {255, 127};
    static const int32_t zero_points[1] = {0}, bias[1] = {0};
    static const uint32_t scales[1] = {WHOLE};
    rt_conv_t c = {
        .rows = 1, .depth = ONE, .width = ONE, .in_channels = 2, .out_channels = 1, .group_in = 2, .group_out = 1};
    c.weights = weights;
    c.bias = bias;
    c.requantize = exact(scales, zero_points);
    const int8_t *const rows[1] = {x};
    int8_t y[1] = {0};
    rt_conv_s8_w16(rows, &c, y);
    CHECK(y[0], 1);
}

int main(void)
{
    three_taps();
    groups_and_channels();
    padding_inside_the_frame();
    wide_weights();
    return check_result();
}
