/* rt_conv_impl.h - body of the convolution; included once for each weight and output type, with RT_CONV (the name),
 * RT_WEIGHT, RT_OUT (types) and RT_STORE(sums, first channel, count, out) set; RT_BYTES where weights are int8.
 *
 * Four output channels at a time share each load of the input. Weights of one output are `stride` elements after those
 * of the output before; those of a depthwise convolution `tap_step` elements after those of the tap before. */
#include "rt_lanes.h"

/* One output position: where its window begins, and which taps along the width are inside the frame. */
typedef struct {
    int32_t depth, width; /* of the first tap; may be negative */
    int32_t first, end;   /* taps first .. end - 1 are inside */
} rt_place_t;

/* Sums are modulo 2^32: with the folded bias they may leave int32 on the way, at the end they are inside. */
static void rt_dot4(const int8_t *x, const RT_WEIGHT *w, int32_t stride, int32_t n, uint32_t *acc)
{
    int32_t i = 0;
#if defined(RT_LANES) && defined(RT_BYTES)
    i = n & ~3;
    if (i > 0)
        rt_words4(x, w, stride, i, acc);
    if (i == n)
        return;
#endif
    const RT_WEIGHT *w1 = w + stride, *w2 = w1 + stride, *w3 = w2 + stride;
    uint32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    for (; i < n; ++i) {
        const int32_t v = x[i];
        a0 += (uint32_t)(v * w[i]);
        a1 += (uint32_t)(v * w1[i]);
        a2 += (uint32_t)(v * w2[i]);
        a3 += (uint32_t)(v * w3[i]);
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

static void rt_dot(const int8_t *x, const RT_WEIGHT *w, int32_t stride, int32_t n, int32_t count, uint32_t *acc)
{
    if (count == 4) {
        rt_dot4(x, w, stride, n, acc);
        return;
    }
    for (int32_t o = 0; o < count; ++o, w += stride)
        for (int32_t i = 0; i < n; ++i)
            acc[o] += (uint32_t)(x[i] * w[i]);
}

/* What taps in the padding add: zero_point * sum(w), because the bias has it subtracted for every tap. */
static void rt_pad(const RT_WEIGHT *w, int32_t stride, int32_t n, int32_t zero_point, int32_t count, uint32_t *acc)
{
    for (int32_t o = 0; o < count; ++o, w += stride)
        for (int32_t i = 0; i < n; ++i)
            acc[o] += (uint32_t)(zero_point * w[i]);
}

/* acc[0..count-1] += the window at one position, for outputs of one group, whose channels start at `channel`: any size. */
static void rt_large_window(const int8_t *const *rows, const rt_conv_t *c, const RT_WEIGHT *w, int32_t stride,
                            const rt_place_t *at, int32_t channel, int32_t count, uint32_t *acc)
{
    const int32_t n = c->group_in, step = c->width.dilation * c->in_channels;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            const int32_t first = depth >= 0 && depth < c->depth.size ? at->first : c->width.taps;
            const int8_t *x = rows[t] + (depth * c->width.size + at->width) * c->in_channels + channel;
            for (int32_t j = 0; j < c->width.taps; ++j, w += n)
                if (j >= first && j < at->end)
                    rt_dot(x + j * step, w, stride, n, count, acc);
                else
                    rt_pad(w, stride, n, c->zero_point, count, acc);
        }
}

enum { RT_PATCH = 128, RT_SHORT_RUN = 16, RT_BLOCK = 16, RT_MOST_RUNS = 15 };

/* A window as runs of values that lie side by side in x and in the weights: where they begin in the first group's input
 * and in the weights of one output, and how many; then runs of weights in the padding, from the end on. */
typedef struct {
    const int8_t *x[RT_MOST_RUNS];
    int32_t weights[RT_MOST_RUNS], length[RT_MOST_RUNS];
    int32_t inside, outside;
} rt_runs_t;

static void rt_add_padding(rt_runs_t *runs, int32_t weights, int32_t length)
{
    if (length > 0) {
        runs->weights[--runs->outside] = weights;
        runs->length[runs->outside] = length;
    }
}

/* At most three runs for a row of taps along the width. */
static void rt_find_runs(const int8_t *const *rows, const rt_conv_t *c, const rt_place_t *at, rt_runs_t *runs)
{
    const int32_t n = c->group_in, taps = c->width.taps;
    int32_t weights = 0;
    runs->inside = 0;
    runs->outside = RT_MOST_RUNS;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i, weights += taps * n) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            const int32_t inside = depth >= 0 && depth < c->depth.size && at->end > at->first;
            const int32_t first = inside ? at->first : taps;
            rt_add_padding(runs, weights, first * n);
            if (inside) {
                runs->x[runs->inside] = rows[t] + (depth * c->width.size + at->width + first) * c->in_channels;
                runs->weights[runs->inside] = weights + first * n;
                runs->length[runs->inside++] = (at->end - first) * n;
                rt_add_padding(runs, weights + at->end * n, (taps - at->end) * n);
            }
        }
}

static void rt_window(const rt_runs_t *runs, const RT_WEIGHT *w, int32_t stride, int32_t channel, int32_t zero_point,
                      int32_t count, uint32_t *acc)
{
    for (int32_t i = 0; i < runs->inside; ++i)
        rt_dot(runs->x[i] + channel, w + runs->weights[i], stride, runs->length[i], count, acc);
    for (int32_t i = runs->outside; i < RT_MOST_RUNS; ++i)
        rt_pad(w + runs->weights[i], stride, runs->length[i], zero_point, count, acc);
}

/* Taps of one depthwise position: where the channels of those in the frame begin, and their weights; then the weights of
 * those in the padding. */
typedef struct {
    const int8_t *x[RT_MOST_TAPS];
    int32_t weights[RT_MOST_TAPS];
    int32_t inside, taps;
} rt_taps_t;

static void rt_gather_taps(const int8_t *const *rows, const rt_conv_t *c, const rt_place_t *at, rt_taps_t *taps)
{
    int32_t weights = 0, inside = 0, outside = c->rows * c->depth.taps * c->width.taps;
    taps->taps = outside;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            const int32_t first = depth >= 0 && depth < c->depth.size ? at->first : c->width.taps;
            const int8_t *x = rows[t] + (depth * c->width.size + at->width) * c->in_channels;
            for (int32_t j = 0; j < c->width.taps; ++j, weights += c->tap_step)
                if (j >= first && j < at->end) {
                    taps->x[inside] = x + j * c->width.dilation * c->in_channels;
                    taps->weights[inside++] = weights;
                } else {
                    taps->weights[--outside] = weights;
                }
        }
    taps->inside = inside;
}

/* Four neighbouring channels of a depthwise convolution, each with its own input. */
static void rt_depthwise4(const rt_taps_t *taps, int32_t channel, const RT_WEIGHT *w, uint32_t *acc)
{
    uint32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    for (int32_t k = 0; k < taps->inside; ++k) {
        const int8_t *x = taps->x[k] + channel;
        const RT_WEIGHT *v = w + taps->weights[k];
#if defined(RT_LANES) && defined(RT_BYTES)
        const uint32_t a = rt_word(x), b = rt_word(v);
        const uint32_t even = rt_even(a), odd = rt_odd(a), even_w = rt_even(b), odd_w = rt_odd(b);
        a0 = rt_low(even, even_w, a0);
        a2 = rt_high(even, even_w, a2);
        a1 = rt_low(odd, odd_w, a1);
        a3 = rt_high(odd, odd_w, a3);
#else
        a0 += (uint32_t)(x[0] * v[0]);
        a1 += (uint32_t)(x[1] * v[1]);
        a2 += (uint32_t)(x[2] * v[2]);
        a3 += (uint32_t)(x[3] * v[3]);
#endif
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

/* `count` neighbouring channels; taps that are missing are padding: the zero point for each of their weights. */
static void rt_depthwise(const rt_taps_t *taps, const rt_conv_t *c, int32_t channel, const RT_WEIGHT *w, int32_t count,
                         uint32_t *acc)
{
    if (count == 4)
        rt_depthwise4(taps, channel, w, acc);
    else
        for (int32_t o = 0; o < count; ++o)
            for (int32_t k = 0; k < taps->inside; ++k)
                acc[o] += (uint32_t)(taps->x[k][channel + o] * w[taps->weights[k] + o]);
    for (int32_t k = taps->inside; k < taps->taps; ++k)
        for (int32_t o = 0; o < count; ++o)
            acc[o] += (uint32_t)(c->zero_point * w[taps->weights[k] + o]);
}

/* The window at one position in the order of the weights, padding filled in: one run for windows of many short ones. */
static void rt_gather_patch(const int8_t *const *rows, const rt_conv_t *c, const rt_place_t *at, int32_t channel,
                            int8_t *patch)
{
    const int32_t n = c->group_in;
    for (int32_t t = 0; t < c->rows; ++t)
        for (int32_t i = 0; i < c->depth.taps; ++i) {
            const int32_t depth = at->depth + i * c->depth.dilation;
            const int32_t first = depth >= 0 && depth < c->depth.size ? at->first : c->width.taps;
            const int8_t *x = rows[t] + (depth * c->width.size + at->width) * c->in_channels + channel;
            for (int32_t j = 0; j < c->width.taps; ++j, x += c->width.dilation * c->in_channels) {
                if (j >= first && j < at->end)
                    for (int32_t k = 0; k < n; ++k)
                        patch[k] = x[k];
                else
                    for (int32_t k = 0; k < n; ++k)
                        patch[k] = (int8_t)c->zero_point;
                patch += n;
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

static void rt_begin(const rt_conv_t *c, int32_t first, int32_t count, uint32_t *acc)
{
    for (int32_t i = 0; i < count; ++i)
        acc[i] = (uint32_t)c->bias[first + i];
}

RT_APART static void rt_position_depthwise(const int8_t *const *rows, const rt_conv_t *c, const rt_place_t *at,
                                           RT_OUT *out)
{
    const RT_WEIGHT *w = (const RT_WEIGHT *)c->weights;
    rt_taps_t taps;
    rt_gather_taps(rows, c, at, &taps);
    for (int32_t start = 0; start < c->out_channels; start += RT_BLOCK) {
        const int32_t block = rt_min(c->out_channels - start, RT_BLOCK);
        uint32_t acc[RT_BLOCK];
        rt_begin(c, start, block, acc);
        for (int32_t o = 0; o < block; o += 4)
            rt_depthwise(&taps, c, start + o, w + start + o, rt_min(block - o, 4), acc + o);
        RT_STORE((const int32_t *)acc, start, block, out + start);
    }
}

/* Windows of many short rows: gathered once per group. */
RT_APART static void rt_position_patch(const int8_t *const *rows, const rt_conv_t *c, int32_t stride,
                                       const rt_place_t *at, RT_OUT *out)
{
    const RT_WEIGHT *w = (const RT_WEIGHT *)c->weights;
    int8_t patch[RT_PATCH];
    int32_t channel = 0;
    for (int32_t group = 0; group < c->out_channels; group += c->group_out, channel += c->group_in) {
        rt_gather_patch(rows, c, at, channel, patch);
        for (int32_t start = group; start < group + c->group_out; start += RT_BLOCK) {
            const int32_t block = rt_min(group + c->group_out - start, RT_BLOCK);
            uint32_t acc[RT_BLOCK];
            rt_begin(c, start, block, acc);
            for (int32_t o = 0; o < block; o += 4) {
                const int32_t count = rt_min(block - o, 4);
                rt_dot(patch, w, stride, stride, count, acc + o);
                w += count * stride;
            }
            RT_STORE((const int32_t *)acc, start, block, out + start);
        }
    }
}

RT_APART static void rt_position(const int8_t *const *rows, const rt_conv_t *c, int32_t stride, const rt_place_t *at,
                                 RT_OUT *out)
{
    /* One tap, or neighbouring taps whose channels are neighbours too. */
    const int32_t in_runs = c->rows * c->depth.taps * 3 <= RT_MOST_RUNS &&
                            (c->width.taps == 1 || c->width.dilation * c->in_channels == c->group_in);
    const RT_WEIGHT *w = (const RT_WEIGHT *)c->weights;
    rt_runs_t runs;
    int32_t channel = 0;
    runs.inside = runs.outside = 0;
    if (in_runs)
        rt_find_runs(rows, c, at, &runs);
    for (int32_t group = 0; group < c->out_channels; group += c->group_out, channel += c->group_in)
        for (int32_t start = group; start < group + c->group_out; start += RT_BLOCK) {
            const int32_t block = rt_min(group + c->group_out - start, RT_BLOCK);
            uint32_t acc[RT_BLOCK];
            rt_begin(c, start, block, acc);
            for (int32_t o = 0; o < block; o += 4) {
                const int32_t count = rt_min(block - o, 4);
                if (in_runs)
                    rt_window(&runs, w, stride, channel, c->zero_point, count, acc + o);
                else
                    rt_large_window(rows, c, w, stride, at, channel, count, acc + o);
                w += count * stride;
            }
            RT_STORE((const int32_t *)acc, start, block, out + start);
        }
}

void RT_CONV(const int8_t *const *rows, const rt_conv_t *c, RT_OUT *y)
{
    const int32_t stride = c->rows * c->depth.taps * c->width.taps * c->group_in;
    const int32_t patch = c->width.taps * c->group_in < RT_SHORT_RUN && stride > c->group_in && stride <= RT_PATCH;
    for (int32_t i = 0; i < c->depth.out; ++i)
        for (int32_t j = 0; j < c->width.out; ++j) {
            const int32_t d = rt_output(&c->depth, i, c->backwards), x = rt_output(&c->width, j, c->backwards);
            RT_OUT *out = y + d * c->y_depth + x * c->y_width;
            rt_place_t at;
            at.depth = d * c->depth.stride - c->depth.before;
            rt_inside(&c->width, x * c->width.stride - c->width.before, &at);
            if (c->tap_step)
                rt_position_depthwise(rows, c, &at, out);
            else if (patch)
                rt_position_patch(rows, c, stride, &at, out);
            else
                rt_position(rows, c, stride, &at, out);
        }
}
