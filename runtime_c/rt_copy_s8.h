/* rt_copy_s8.h - strided copies inside a frame: permute, slice, repeat, pad, join. */
#ifndef RT_COPY_S8_H
#define RT_COPY_S8_H

#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sizes[0] is the outermost; strides in elements (0 repeats). */
typedef struct {
    int32_t sizes[4];
    int32_t from_strides[4];
    int32_t to_strides[4];
} rt_copy_t;

void rt_copy_s8(const int8_t *from, const rt_copy_t *c, int8_t *to);

#ifdef __cplusplus
}
#endif

#endif
