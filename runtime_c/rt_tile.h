/* rt_tile.h - one tile of a convolution's or a pool's output frame: which outputs, which inputs, and copies of both.
 *
 * <NAME>_TILES_H may name a header of yours (-DKWS_TILES_H='"dma.h"') that is included first. It may define RT_COPY_IN and
 * RT_COPY_OUT (destination, source, bytes): how tiles come to fast memory and go back, memcpy by default. */
#ifndef RT_TILE_H
#define RT_TILE_H

#include "rt_axis.h"

#ifdef RT_TILES_H
#include RT_TILES_H
#endif
#ifndef RT_COPY_IN
#define RT_COPY_IN(to, from, bytes) ((void)memcpy((to), (from), (size_t)(bytes)))
#endif
#ifndef RT_COPY_OUT
#define RT_COPY_OUT(to, from, bytes) ((void)memcpy((to), (from), (size_t)(bytes)))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* How an output frame is cut. Channels are cut inside a group, or in whole groups; the last block may be smaller. */
typedef struct {
    int32_t channels, group_in, group_out; /* channels in all, and per group (a pool: one of each) */
    int32_t block_channels, block_depth, block_width;
} rt_tiling_t;

/* Inputs of one axis that the tile reads, and the axis as its kernel sees it. */
typedef struct {
    int32_t first, count;
    rt_axis_t axis;
} rt_part_t;

typedef struct {
    int32_t channel, channels, depth, depths, width, widths; /* outputs: first and count */
    int32_t x_channel, x_channels;
    rt_part_t d, w;
} rt_tile_t;

/* Tile number `task`, width innermost. `copied`: its inputs will lie in a buffer of their own, else in the frame. */
void rt_tile(const rt_tiling_t *t, const rt_axis_t *depth, const rt_axis_t *width, int32_t task, int32_t copied,
             rt_tile_t *tile);

/* The core, of so many, whose fast memory a task uses: task modulo cores. */
int32_t rt_tile_core(int32_t task, int32_t cores);

/* rows[0..count-1] (NULL: none), frames of `width_size` positions of `channels`, begin with the tile's channels. */
void rt_tile_shift(const rt_tile_t *t, int32_t count, const int8_t **rows);
/* The same for copies of the tile's inputs, one row behind the other from `to` on. */
void rt_tile_in(const rt_tile_t *t, int32_t width_size, int32_t channels, int32_t count, const int8_t **rows,
                int8_t *to);
/* Outputs [depths][widths][channels] of `element` bytes to their place in the frame, which begins at y; positions are
 * y_depth and y_width elements apart. */
void rt_tile_out(const rt_tile_t *t, const void *from, int32_t element, int32_t y_depth, int32_t y_width, void *y);

#ifdef __cplusplus
}
#endif

/* What the structs of all window kernels have in common, cut to a tile; and for copies of its inputs and outputs. */
#define RT_TAKE_PART(whole, tile, part) \
    do {                                \
        *(part) = *(whole);             \
        (part)->depth = (tile)->d.axis; \
        (part)->width = (tile)->w.axis; \
    } while (0)
#define RT_TAKE_COPIES(tile, part)                               \
    do {                                                         \
        (part)->in_channels = (tile)->x_channels;                \
        if (RT_TILE_COPIES_Y) {                                  \
            (part)->y_width = (tile)->channels;                  \
            (part)->y_depth = (tile)->widths * (tile)->channels; \
        }                                                        \
    } while (0)

/* Traced values are named by their place in the frame, so a traced build writes them there at once. */
#ifdef RT_TRACE
enum { RT_TILE_COPIES_Y = 0 };
#else
enum { RT_TILE_COPIES_Y = 1 };
#endif

#endif
