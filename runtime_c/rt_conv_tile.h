/* rt_conv_tile.h - the part of a convolution that makes one tile. */
#ifndef RT_CONV_TILE_H
#define RT_CONV_TILE_H

#include "rt_conv_s8.h"
#include "rt_tile.h"

/* Weights and constants of the tile's channels, where they are. */
static inline void rt_conv_part(const rt_conv_t *c, const rt_tile_t *t, int32_t weight_bytes, rt_conv_t *part)
{
    const int32_t stride = c->rows * c->depth.taps * c->width.taps * c->group_in;
    rt_requant_t *q = &part->requantize;
    RT_TAKE_PART(c, t, part);
    part->out_channels = t->channels;
    if (t->channels < c->group_out)
        part->group_out = t->channels;
    part->weights = (const int8_t *)c->weights + t->channel * (c->tap_step ? 1 : stride) * weight_bytes;
    part->bias += t->channel;
    q->multiplier = q->multiplier == NULL ? NULL : q->multiplier + t->channel;
    q->rounding = q->rounding == NULL ? NULL : q->rounding + t->channel;
    q->left_shift = q->left_shift == NULL ? NULL : q->left_shift + t->channel;
    q->parity = q->parity == NULL ? NULL : q->parity + t->channel;
    q->scale_bits = q->scale_bits == NULL ? NULL : q->scale_bits + t->channel;
}

/* The same with copies of bias and weights in fast memory, for inputs and outputs of the tile alone. Returns the first
 * byte behind them. */
static inline int8_t *rt_conv_fast(const rt_conv_t *c, const rt_tile_t *t, int32_t weight_bytes, int8_t *fast,
                                   rt_conv_t *part)
{
    const int32_t bias = t->channels * 4, taps = c->rows * c->depth.taps * c->width.taps;
    /* Weights of the tile's channels are neighbours, or neighbours for each tap. */
    const int32_t runs = c->tap_step ? taps : 1, step = c->tap_step * weight_bytes;
    const int32_t run = t->channels * (c->tap_step ? 1 : taps * c->group_in) * weight_bytes;
    rt_conv_part(c, t, weight_bytes, part);
    RT_COPY_IN(fast, part->bias, bias);
    for (int32_t i = 0; i < runs; ++i)
        RT_COPY_IN(fast + bias + i * run, (const int8_t *)part->weights + i * step, run);
    part->bias = (const int32_t *)(const void *)fast;
    part->weights = fast + bias;
    part->tap_step = c->tap_step ? t->channels : 0;
    RT_TAKE_COPIES(t, part);
    return fast + bias + runs * run;
}

#endif
