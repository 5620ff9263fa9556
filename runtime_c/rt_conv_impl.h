/* rt_conv_impl.h - body of the convolution; included once for each weight and output type, with RT_CONV (the name),
 * RT_WEIGHT, RT_OUT (types) and RT_STORE(accumulator, channel) set. */

static int32_t rt_dot(const int8_t *x, const RT_WEIGHT *w, int32_t n)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < n; ++i)
        sum += x[i] * w[i];
    return sum;
}

/* What a tap in the padding adds: zero_point * sum(w), because the bias has it subtracted for every tap. */
static int32_t rt_pad_tap(const RT_WEIGHT *w, int32_t n, int32_t zero_point)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < n; ++i)
        sum += w[i];
    return sum * zero_point;
}

/* One accumulator: all taps of output channel weights `w` at in-frame position (d, x), channels from `channel` on. */
static int32_t rt_window(const int8_t *const *rows, const rt_conv_t *c, const RT_WEIGHT *w, int32_t d, int32_t x,
                         int32_t channel)
{
    const int32_t n = c->group_in;
    int32_t acc = 0;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i) {
            const int32_t at_d = d + i * c->depth.dilation;
            for (int32_t j = 0; j < c->width.taps; ++j, w += n) {
                const int32_t at_x = x + j * c->width.dilation;
                if (at_d < 0 || at_d >= c->depth.size || at_x < 0 || at_x >= c->width.size)
                    acc += rt_pad_tap(w, n, c->zero_point);
                else
                    acc += rt_dot(rows[t] + (at_d * c->width.size + at_x) * c->in_channels + channel, w, n);
            }
        }
    return acc;
}

void RT_CONV(const int8_t *const *rows, const rt_conv_t *c, RT_OUT *y)
{
    const int32_t n = c->group_in;
    const int32_t taps = c->rows * c->depth.taps * c->width.taps * n;
    for (int32_t d = 0; d < c->depth.out; ++d)
        for (int32_t x = 0; x < c->width.out; ++x) {
            const RT_WEIGHT *w = (const RT_WEIGHT *)c->weights;
            RT_OUT *out = y + d * c->y_depth + x * c->y_width;
            int32_t group = 0, left = c->group_out;
            for (int32_t o = 0; o < c->out_channels; ++o, w += taps) {
                const int32_t sum = rt_window(rows, c, w, d * c->depth.stride - c->depth.before,
                                              x * c->width.stride - c->width.before, group * n);
                /* Modulo 2^32: the folded bias may leave int32, their sum does not. */
                const int32_t acc = (int32_t)((uint32_t)c->bias[o] + (uint32_t)sum);
                RT_TRACE_PLACE(out);
                *out++ = RT_STORE(acc, o);
                if (--left == 0) {
                    left = c->group_out;
                    ++group;
                }
            }
        }
}
