/* rt_conv_impl.h - body of the convolution; included once for each weight and output type, with RT_CONV (the name),
 * RT_WEIGHT, RT_OUT (types) and RT_STORE(accumulator, channel) set.
 *
 * Four output channels at a time share each load of the input. Weights of one output are `stride` elements after those
 * of the output before. */

/* One output position: where its window begins, and which taps along the width are inside the frame. */
typedef struct {
    int32_t depth, width; /* of the first tap; may be negative */
    int32_t first, end;   /* taps first .. end - 1 are inside */
} rt_place_t;

static void rt_dot4(const int8_t *x, const RT_WEIGHT *w, int32_t stride, int32_t n, int32_t *acc)
{
    const RT_WEIGHT *w1 = w + stride, *w2 = w1 + stride, *w3 = w2 + stride;
    int32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    for (int32_t i = 0; i < n; ++i) {
        const int32_t v = x[i];
        a0 += v * w[i];
        a1 += v * w1[i];
        a2 += v * w2[i];
        a3 += v * w3[i];
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

static void rt_dot(const int8_t *x, const RT_WEIGHT *w, int32_t stride, int32_t n, int32_t count, int32_t *acc)
{
    if (count == 4) {
        rt_dot4(x, w, stride, n, acc);
        return;
    }
    for (int32_t o = 0; o < count; ++o, w += stride)
        for (int32_t i = 0; i < n; ++i)
            acc[o] += x[i] * w[i];
}

/* What taps in the padding add: zero_point * sum(w), because the bias has it subtracted for every tap. */
static void rt_pad(const RT_WEIGHT *w, int32_t stride, int32_t n, int32_t zero_point, int32_t count, int32_t *acc)
{
    for (int32_t o = 0; o < count; ++o, w += stride)
        for (int32_t i = 0; i < n; ++i)
            acc[o] += zero_point * w[i];
}

/* acc[0..count-1] = the window at one position for `count` outputs of one group, whose channels start at `channel`. */
static void rt_window(const int8_t *const *rows, const rt_conv_t *c, const RT_WEIGHT *w, int32_t stride,
                      const rt_place_t *at, int32_t channel, int32_t count, int32_t *acc)
{
    const int32_t n = c->group_in, step = c->width.dilation * c->in_channels;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i, w += c->width.taps * n) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            const int8_t *x = rows[t] + (depth * c->width.size + at->width) * c->in_channels + channel;
            if (depth < 0 || depth >= c->depth.size || at->end <= at->first) {
                rt_pad(w, stride, c->width.taps * n, c->zero_point, count, acc);
                continue;
            }
            if (at->first > 0)
                rt_pad(w, stride, at->first * n, c->zero_point, count, acc);
            if (step == n) /* neighbours in memory: one run */
                rt_dot(x + at->first * n, w + at->first * n, stride, (at->end - at->first) * n, count, acc);
            else
                for (int32_t j = at->first; j < at->end; ++j)
                    rt_dot(x + j * step, w + j * n, stride, n, count, acc);
            if (at->end < c->width.taps)
                rt_pad(w + at->end * n, stride, (c->width.taps - at->end) * n, c->zero_point, count, acc);
        }
}

enum { RT_MOST_TAPS = 32, RT_PATCH = 128, RT_SHORT_RUN = 16 };

/* Taps of one depthwise position that lie in the frame: where their channels begin, and their place in the weights. */
typedef struct {
    const int8_t *x[RT_MOST_TAPS];
    uint8_t index[RT_MOST_TAPS];
    int32_t count, missing;
} rt_taps_t;

static void rt_gather_taps(const int8_t *const *rows, const rt_conv_t *c, const rt_place_t *at, rt_taps_t *taps)
{
    int32_t place = 0, count = 0;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            for (int32_t j = 0; j < c->width.taps; ++j, ++place)
                if (depth >= 0 && depth < c->depth.size && j >= at->first && j < at->end) {
                    const int32_t width = at->width + j * c->width.dilation;
                    taps->x[count] = rows[t] + (depth * c->width.size + width) * c->in_channels;
                    taps->index[count++] = (uint8_t)place;
                }
        }
    taps->count = count;
    taps->missing = place - count;
}

/* Four neighbouring channels of a depthwise convolution, each with its own input. */
static void rt_depthwise4(const rt_taps_t *taps, int32_t channel, const RT_WEIGHT *w, int32_t stride, int32_t *acc)
{
    const RT_WEIGHT *w1 = w + stride, *w2 = w1 + stride, *w3 = w2 + stride;
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    for (int32_t k = 0; k < taps->count; ++k) {
        const int8_t *x = taps->x[k] + channel;
        const int32_t i = taps->index[k];
        a0 += x[0] * w[i];
        a1 += x[1] * w1[i];
        a2 += x[2] * w2[i];
        a3 += x[3] * w3[i];
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

/* `count` neighbouring channels; taps that are missing are padding: the zero point for each of their weights. */
static void rt_depthwise(const rt_taps_t *taps, const rt_conv_t *c, int32_t channel, const RT_WEIGHT *w, int32_t stride,
                         int32_t count, int32_t *acc)
{
    if (count == 4)
        rt_depthwise4(taps, channel, w, stride, acc);
    else
        for (int32_t o = 0; o < count; ++o)
            for (int32_t k = 0; k < taps->count; ++k)
                acc[o] += taps->x[k][channel + o] * w[o * stride + taps->index[k]];
    if (taps->missing > 0)
        for (int32_t o = 0; o < count; ++o) {
            int32_t sum = 0;
            for (int32_t k = 0; k < stride; ++k)
                sum += w[o * stride + k];
            for (int32_t k = 0; k < taps->count; ++k)
                sum -= w[o * stride + taps->index[k]];
            acc[o] += c->zero_point * sum;
        }
}

/* The window at one position in the order of the weights, padding filled in: one run for windows of many short ones. */
static void rt_gather_patch(const int8_t *const *rows, const rt_conv_t *c, const rt_place_t *at, int32_t channel,
                            int8_t *patch)
{
    const int32_t n = c->group_in;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            const int32_t inside = depth >= 0 && depth < c->depth.size;
            for (int32_t j = 0; j < c->width.taps; ++j) {
                const int32_t width = at->width + j * c->width.dilation;
                const int8_t *x = rows[t] + (depth * c->width.size + width) * c->in_channels + channel;
                for (int32_t k = 0; k < n; ++k)
                    *patch++ = inside && j >= at->first && j < at->end ? x[k] : (int8_t)c->zero_point;
            }
        }
}

/* Taps along the width that are inside the frame for a window that begins at x. */
static void rt_inside(const rt_axis_t *a, int32_t x, rt_place_t *at)
{
    int32_t first = 0, end = a->taps;
    while (first < end && x + first * a->dilation < 0)
        ++first;
    while (end > first && x + (end - 1) * a->dilation >= a->size)
        --end;
    at->width = x;
    at->first = first;
    at->end = end;
}

/* Round and store `count` accumulators of the outputs from `o` on. */
static RT_OUT *rt_store(const rt_conv_t *c, const int32_t *acc, int32_t o, int32_t count, RT_OUT *out)
{
    for (int32_t i = 0; i < count; ++i) {
        /* Modulo 2^32: the folded bias may leave int32, their sum does not. */
        const int32_t sum = (int32_t)((uint32_t)c->bias[o + i] + (uint32_t)acc[i]);
        RT_TRACE_PLACE(out);
        *out++ = RT_STORE(sum, o + i);
    }
    return out;
}

static void rt_position_depthwise(const int8_t *const *rows, const rt_conv_t *c, int32_t stride, const rt_place_t *at,
                                  RT_OUT *out)
{
    const RT_WEIGHT *w = (const RT_WEIGHT *)c->weights;
    rt_taps_t taps;
    rt_gather_taps(rows, c, at, &taps);
    for (int32_t o = 0; o < c->out_channels; o += 4, w += 4 * stride) {
        const int32_t count = c->out_channels - o < 4 ? c->out_channels - o : 4;
        int32_t acc[4] = {0, 0, 0, 0};
        rt_depthwise(&taps, c, o, w, stride, count, acc);
        out = rt_store(c, acc, o, count, out);
    }
}

static void rt_position(const int8_t *const *rows, const rt_conv_t *c, int32_t stride, const rt_place_t *at,
                        RT_OUT *out)
{
    const int32_t gather = c->width.taps * c->group_in < RT_SHORT_RUN && stride > c->group_in && stride <= RT_PATCH;
    const RT_WEIGHT *w = (const RT_WEIGHT *)c->weights;
    int8_t patch[RT_PATCH];
    int32_t channel = 0;
    for (int32_t start = 0; start < c->out_channels; start += c->group_out, channel += c->group_in) {
        if (gather)
            rt_gather_patch(rows, c, at, channel, patch);
        for (int32_t o = start; o < start + c->group_out; o += 4) {
            const int32_t left = start + c->group_out - o, count = left < 4 ? left : 4;
            int32_t acc[4] = {0, 0, 0, 0};
            if (gather)
                rt_dot(patch, w, stride, stride, count, acc);
            else
                rt_window(rows, c, w, stride, at, channel, count, acc);
            w += count * stride;
            out = rt_store(c, acc, o, count, out);
        }
    }
}

void RT_CONV(const int8_t *const *rows, const rt_conv_t *c, RT_OUT *y)
{
    const int32_t stride = c->rows * c->depth.taps * c->width.taps * c->group_in;
    const int32_t depthwise = c->group_in == 1 && c->group_out == 1 && stride <= RT_MOST_TAPS;
    for (int32_t i = 0; i < c->depth.out; ++i)
        for (int32_t j = 0; j < c->width.out; ++j) {
            const int32_t d = rt_output(&c->depth, i, c->backwards), x = rt_output(&c->width, j, c->backwards);
            RT_OUT *out = y + d * c->y_depth + x * c->y_width;
            rt_place_t at;
            at.depth = d * c->depth.stride - c->depth.before;
            rt_inside(&c->width, x * c->width.stride - c->width.before, &at);
            if (depthwise)
                rt_position_depthwise(rows, c, stride, &at, out);
            else
                rt_position(rows, c, stride, &at, out);
        }
}
