#include "rt_conv_s8.h"

#define RT_WEIGHT int8_t
#define RT_BYTES
#define RT_OUT int32_t
#define RT_STORE(acc, o, count, out) memcpy((out), (acc), (size_t)(count) * sizeof *(out))
#define RT_CONV rt_conv_acc_s8
#include "rt_conv_impl.h"
