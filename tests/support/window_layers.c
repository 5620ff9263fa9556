/* Layers untiled and tile by tile, for numpy: the calls that a generated tile makes (templates/tile_call.c.j2). */
#include "rt_avgpool_tile.h"
#include "rt_conv_tile.h"
#include "rt_maxpool_tile.h"

enum { MOST_ROWS = 8, MOST_CELLS = 512 };

typedef struct {
    int32_t rows, tasks;
    rt_axis_t depth, width;
    rt_tiling_t tiling;
    rt_range_t depth_counts, width_counts;
    int32_t in_channels, out_channels, zero_point, missing, backwards,
        tap_step; /* row `missing` is padding; -1: none */
} layer_t;

static void take_rows(const layer_t *l, const int8_t *x, const int8_t *pad, const int8_t **rows)
{
    const int32_t bytes = l->depth.size * l->width.size * l->in_channels;
    for (int32_t t = 0; t < l->rows; ++t)
        rows[t] = t == l->missing ? pad : x + t * bytes;
}

/* What every tile does around its kernel. */
#define TILES(PART, FAST, FAST_Y_FIRST, CALL, OUT)                                                     \
    for (int32_t task = 0; task < l->tasks; ++task) {                                                  \
        rt_tile_t tile;                                                                                \
        take_rows(l, x, pad, rows);                                                                    \
        rt_tile(&l->tiling, &whole.depth, &whole.width, task, fast != NULL, &tile);                    \
        if (fast == NULL) {                                                                            \
            PART;                                                                                      \
            rt_tile_shift(&tile, l->rows, rows);                                                       \
            OUT *out = y + tile.depth * whole.y_depth + tile.width * whole.y_width + tile.channel;     \
            CALL;                                                                                      \
        } else {                                                                                       \
            int8_t *next = fast;                                                                       \
            OUT *out = (OUT *)(void *)fast;                                                            \
            if (FAST_Y_FIRST)                                                                          \
                next += tile.depths * tile.widths * tile.channels * (int32_t)sizeof(OUT);              \
            FAST;                                                                                      \
            rt_tile_in(&tile, whole.width.size, l->in_channels, l->rows, rows, next);                  \
            if (!FAST_Y_FIRST)                                                                         \
                out = (OUT *)(void *)(next + l->rows * tile.d.count * tile.w.count * tile.x_channels); \
            CALL;                                                                                      \
            rt_tile_out(&tile, out, (int32_t)sizeof(OUT), whole.y_depth, whole.y_width, y);            \
        }                                                                                              \
    }

static rt_conv_t convolution(const layer_t *l, const void *weights, const int32_t *bias, const rt_requant_t *q)
{
    rt_conv_t c = {l->rows,
                   l->depth,
                   l->width,
                   l->in_channels,
                   l->out_channels,
                   l->tiling.group_in,
                   l->tiling.group_out,
                   l->width.out * l->out_channels,
                   l->out_channels,
                   l->zero_point,
                   l->backwards,
                   l->tap_step,
                   weights,
                   bias,
                   *q};
    return c;
}

void conv(const layer_t *l, const int8_t *x, const int8_t *pad, const int8_t *weights, const int32_t *bias,
          const rt_requant_t *q, int8_t *fast, int tiled, int8_t *y)
{
    const rt_conv_t whole = convolution(l, weights, bias, q);
    const int8_t *rows[MOST_ROWS];
    rt_conv_t part;
    take_rows(l, x, pad, rows);
    if (!tiled) {
        rt_conv_s8(rows, &whole, y);
        return;
    }
    TILES(rt_conv_part(&whole, &tile, 1, &part), next = rt_conv_fast(&whole, &tile, 1, next, &part), 0,
          rt_conv_s8(rows, &part, out), int8_t)
}

void conv_acc(const layer_t *l, const int8_t *x, const int8_t *pad, const int16_t *weights, const int32_t *bias,
              const rt_requant_t *q, int8_t *fast, int tiled, int32_t *y)
{
    const rt_conv_t whole = convolution(l, weights, bias, q);
    const int8_t *rows[MOST_ROWS];
    rt_conv_t part;
    take_rows(l, x, pad, rows);
    if (!tiled) {
        rt_conv_acc_s8_w16(rows, &whole, y);
        return;
    }
    TILES(rt_conv_part(&whole, &tile, 2, &part), next = rt_conv_fast(&whole, &tile, 2, next, &part), 1,
          rt_conv_acc_s8_w16(rows, &part, out), int32_t)
}

static rt_maxpool_t largest(const layer_t *l)
{
    const int32_t channels = l->in_channels;
    rt_maxpool_t p = {l->rows, l->depth, l->width, channels, channels, l->width.out * channels, channels, l->backwards};
    return p;
}

void maxpool(const layer_t *l, const int8_t *x, const int8_t *pad, int8_t *fast, int tiled, int8_t *y)
{
    const rt_maxpool_t whole = largest(l);
    const int8_t *rows[MOST_ROWS];
    rt_maxpool_t part;
    take_rows(l, x, pad, rows);
    if (!tiled) {
        rt_maxpool_s8(rows, &whole, y);
        return;
    }
    TILES(rt_maxpool_part(&whole, &tile, &part), rt_maxpool_fast(&whole, &tile, &part), 0,
          rt_maxpool_s8(rows, &part, out), int8_t)
}

/* Each number of cells has a rounding of its own, so that a wrong count shows. */
static rt_avgpool_t average(const layer_t *l)
{
    static rt_divisor_t divisors[MOST_CELLS];
    const int32_t channels = l->in_channels;
    for (int32_t i = 0; i < MOST_CELLS; ++i) {
        const rt_linear_t divide = {(1 << 30) + i * 12345, i << 6, 0, 0, NULL, 0, -128, 127, 8, 8};
        divisors[i].count = i;
        divisors[i].divide = divide;
    }
    rt_avgpool_t p = {l->rows,         l->depth,     l->width,      l->depth_counts,
                      l->width_counts, channels,     channels,      l->width.out * channels,
                      channels,        l->backwards, l->zero_point, divisors,
                      MOST_CELLS};
    return p;
}

void avgpool(const layer_t *l, const int8_t *x, int8_t *fast, int tiled, int8_t *y)
{
    const rt_avgpool_t whole = average(l);
    const int32_t count = l->rows - (l->missing >= 0);
    const int8_t *const pad = NULL;
    const int8_t *rows[MOST_ROWS];
    rt_avgpool_t part;
    take_rows(l, x, pad, rows);
    if (!tiled) {
        rt_avgpool_s8(rows, count, &whole, y);
        return;
    }
    TILES(rt_avgpool_part(&whole, &tile, &part), rt_avgpool_fast(&whole, &tile, &part), 0,
          rt_avgpool_s8(rows, count, &part, out), int8_t)
}

/* Rows that lie anywhere; row `missing` is padding all the same. */
static void take_given(const layer_t *l, const int8_t *const *given, const int8_t *pad, const int8_t **rows)
{
    for (int32_t t = 0; t < l->rows; ++t)
        rows[t] = t == l->missing ? pad : given[t];
}

void conv_rows(const layer_t *l, const int8_t *const *given, const int8_t *pad, const int8_t *weights,
               const int32_t *bias, const rt_requant_t *q, int8_t *y)
{
    const rt_conv_t whole = convolution(l, weights, bias, q);
    const int8_t *rows[MOST_ROWS];
    take_given(l, given, pad, rows);
    rt_conv_s8(rows, &whole, y);
}

void maxpool_rows(const layer_t *l, const int8_t *const *given, const int8_t *pad, int8_t *y)
{
    const rt_maxpool_t whole = largest(l);
    const int8_t *rows[MOST_ROWS];
    take_given(l, given, pad, rows);
    rt_maxpool_s8(rows, &whole, y);
}

void avgpool_rows(const layer_t *l, const int8_t *const *given, const int8_t *pad, int8_t *y)
{
    const rt_avgpool_t whole = average(l);
    const int8_t *rows[MOST_ROWS];
    (void)pad;
    take_given(l, given, NULL, rows);
    rt_avgpool_s8(rows, l->rows - (l->missing >= 0), &whole, y);
}
