/* rt_avgpool_tile.h - the part of an AveragePool that makes one tile. */
#ifndef RT_AVGPOOL_TILE_H
#define RT_AVGPOOL_TILE_H

#include "rt_avgpool_s8.h"
#include "rt_tile.h"

static inline void rt_avgpool_part(const rt_avgpool_t *p, const rt_tile_t *t, rt_avgpool_t *part)
{
    RT_TAKE_PART(p, t, part);
    part->channels = t->channels;
}

/* The same for copies of the tile's inputs and outputs: positions count from the first that was copied. */
static inline void rt_avgpool_fast(const rt_avgpool_t *p, const rt_tile_t *t, rt_avgpool_t *part)
{
    rt_avgpool_part(p, t, part);
    part->depth_counts.first -= t->d.first;
    part->depth_counts.end -= t->d.first;
    part->width_counts.first -= t->w.first;
    part->width_counts.end -= t->w.first;
    RT_TAKE_COPIES(t, part);
}

#endif
