#include "rt_copy_s8.h"

static void rt_copy_line(const int8_t *from, int32_t from_stride, int8_t *to, int32_t to_stride, int32_t n)
{
    if (from_stride == 1 && to_stride == 1) {
        memmove(to, from, (size_t)n); /* a Concat may take over the memory of an operand */
        return;
    }
    for (int32_t i = 0; i < n; ++i)
        to[i * to_stride] = from[i * from_stride];
}

void rt_copy_s8(const int8_t *from, const rt_copy_t *c, int8_t *to)
{
    for (int32_t i = 0; i < c->sizes[0]; ++i)
        for (int32_t j = 0; j < c->sizes[1]; ++j)
            for (int32_t k = 0; k < c->sizes[2]; ++k)
                rt_copy_line(from + i * c->from_strides[0] + j * c->from_strides[1] + k * c->from_strides[2],
                             c->from_strides[3],
                             to + i * c->to_strides[0] + j * c->to_strides[1] + k * c->to_strides[2], c->to_strides[3],
                             c->sizes[3]);
}
