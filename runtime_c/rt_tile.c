#include "rt_tile.h"

#include "rt_stream.h"

static int32_t rt_blocks(int32_t size, int32_t block)
{
    return rt_floor_div(size + block - 1, block);
}

/* Takes the number modulo `size` off `rest`: the innermost digit, and what is left in front of it. */
static int32_t rt_digit(int32_t *rest, int32_t size)
{
    const int32_t front = rt_floor_div(*rest, size), digit = *rest - front * size;
    *rest = front;
    return digit;
}

/* Outputs start .. start + n - 1 of an axis. */
static void rt_cut(const rt_axis_t *a, int32_t start, int32_t n, int32_t copied, rt_part_t *part)
{
    const int32_t at = start * a->stride - a->before;
    const int32_t end = rt_min(at + (n - 1) * a->stride + a->dilation * (a->taps - 1) + 1, a->size);
    part->first = at < 0 ? 0 : rt_min(at, a->size);
    part->count = end > part->first ? end - part->first : 0;
    part->axis = *a;
    part->axis.out = n;
    part->axis.before = -at;
    if (copied) {
        part->axis.size = part->count;
        part->axis.before += part->first;
    }
}

void rt_tile(const rt_tiling_t *t, const rt_axis_t *depth, const rt_axis_t *width, int32_t task, int32_t copied,
             rt_tile_t *tile)
{
    /* Blocks smaller than a group begin anew with every group. */
    const int32_t unit = t->block_channels < t->group_out ? t->group_out : t->channels;
    int32_t rest = task, inside;
    tile->width = rt_digit(&rest, rt_blocks(width->out, t->block_width)) * t->block_width;
    tile->depth = rt_digit(&rest, rt_blocks(depth->out, t->block_depth)) * t->block_depth;
    inside = rt_digit(&rest, rt_blocks(unit, t->block_channels)) * t->block_channels;
    tile->channel = rest * unit + inside;
    tile->widths = rt_min(t->block_width, width->out - tile->width);
    tile->depths = rt_min(t->block_depth, depth->out - tile->depth);
    tile->channels = rt_min(t->block_channels, unit - inside);
    tile->x_channel = rt_floor_div(tile->channel, t->group_out) * t->group_in;
    tile->x_channels = rt_blocks(tile->channels, t->group_out) * t->group_in;
    rt_cut(depth, tile->depth, tile->depths, copied, &tile->d);
    rt_cut(width, tile->width, tile->widths, copied, &tile->w);
}

void rt_tile_shift(const rt_tile_t *t, int32_t count, const int8_t **rows)
{
    for (int32_t i = 0; i < count; ++i)
        if (rows[i] != NULL)
            rows[i] += t->x_channel;
}

void rt_tile_in(const rt_tile_t *t, int32_t width_size, int32_t channels, int32_t count, const int8_t **rows,
                int8_t *to)
{
    /* Whole positions are neighbours in memory. */
    const int32_t run = t->x_channels == channels ? t->w.count * channels : t->x_channels;
    for (int32_t i = 0; i < count; ++i) {
        const int8_t *row = rows[i];
        if (row == NULL)
            continue;
        rows[i] = to;
        for (int32_t d = 0; d < t->d.count; ++d) {
            const int8_t *from = row + ((t->d.first + d) * width_size + t->w.first) * channels + t->x_channel;
            for (int32_t done = 0; done < t->w.count * t->x_channels; done += run, to += run, from += channels)
                RT_COPY_IN(to, from, run);
        }
    }
}

void rt_tile_out(const rt_tile_t *t, const void *from, int32_t element, int32_t y_depth, int32_t y_width, void *y)
{
    const int32_t run = (t->channels == y_width ? t->widths * y_width : t->channels) * element;
    const int8_t *next = (const int8_t *)from;
    for (int32_t d = 0; d < t->depths; ++d) {
        int8_t *to = (int8_t *)y + ((t->depth + d) * y_depth + t->width * y_width + t->channel) * element;
        for (int32_t done = 0; done < t->widths * t->channels * element;
             done += run, next += run, to += y_width * element)
            RT_COPY_OUT(to, next, run);
    }
}

int32_t rt_tile_core(int32_t task, int32_t cores)
{
    return rt_digit(&task, cores);
}
