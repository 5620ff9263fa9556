#include "rt_conv_s8.h"

#define RT_WEIGHT int8_t
#define RT_BYTES
#define RT_OUT int8_t
#define RT_STORE(acc, o, count, out) rt_requantize_block_s8((acc), &c->requantize, (o), (count), (out))
#define RT_CONV rt_conv_s8
#include "rt_conv_impl.h"
