/* rt_softmax_s8.h - softmax and log-softmax over the last axis, integers only, within one code of the real value.
 *
 * The integer definition and its error bound are in codegen/numerics/softmax.py; this is equal to it code for code. */
#ifndef RT_SOFTMAX_S8_H
#define RT_SOFTMAX_S8_H

#include "rt_target.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const uint32_t *table;   /* [256]: round(2^b * exp(-d * x scale)), d = largest code - code */
    uint32_t scale_mantissa; /* y scale = mantissa * 2^-(16 + quotient_bits), 2^15 < mantissa <= 2^16 */
    int32_t quotient_bits;   /* bits of the quotient below its integer part */
    int32_t zero_point;
    int8_t lo, hi;
} rt_softmax_t;

/* rows times n codes; n at most what the build checked; y may be x. */
void rt_softmax_s8(const int8_t *x, int32_t rows, int32_t n, const rt_softmax_t *p, int8_t *y);

#define RT_LOG_STEPS 20

/* Numbers of the output are codes with `shift` fraction bits. */
typedef struct {
    const uint32_t *table;     /* [256]: as in rt_softmax_t */
    const int32_t *difference; /* [256]: d * x scale / y scale */
    const int32_t *logs;       /* [RT_LOG_STEPS + 1]: ln(1 + 2^-i) / y scale, i = 0 .. RT_LOG_STEPS */
    int32_t table_bits;        /* b */
    int32_t shift;
    int32_t zero_point;
    int8_t lo, hi;
} rt_log_softmax_t;

/* The same for log(softmax(x)). */
void rt_log_softmax_s8(const int8_t *x, int32_t rows, int32_t n, const rt_log_softmax_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
