/* rt_maxpool_tile.h - the part of a MaxPool that makes one tile. */
#ifndef RT_MAXPOOL_TILE_H
#define RT_MAXPOOL_TILE_H

#include "rt_maxpool_s8.h"
#include "rt_tile.h"

static inline void rt_maxpool_part(const rt_maxpool_t *p, const rt_tile_t *t, rt_maxpool_t *part)
{
    RT_TAKE_PART(p, t, part);
    part->channels = t->channels;
}

/* The same for copies of the tile's inputs and outputs. */
static inline void rt_maxpool_fast(const rt_maxpool_t *p, const rt_tile_t *t, rt_maxpool_t *part)
{
    rt_maxpool_part(p, t, part);
    RT_TAKE_COPIES(t, part);
}

#endif
