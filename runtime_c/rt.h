/* rt.h - what every runtime file and every generated file relies on. C99, integers only, no heap.
 *
 * All file-level identifiers start with rt_ or RT_: the generator copies the files it needs and renames that prefix to
 * the model's own (kws_rt_, KWS_RT_), so that two generated models link into one program. */
#ifndef RT_H
#define RT_H

#include <stdint.h>
#include <string.h>

/* Version of the contract between generated code and these files. */
#define RT_API 1

#define RT_PASTE_(a, b) a##b
#define RT_PASTE(a, b) RT_PASTE_(a, b)

/* Compile-time check, at file or block scope. It declares an array that nobody defines: a repeated declaration (the same
 * line number in two headers) is legal C99, a repeated typedef is not. */
#define RT_STATIC_ASSERT(condition, message) \
    extern const char RT_PASTE(rt_static_assert_, __LINE__)[(condition) ? 1 : -1]

#ifdef __cplusplus
extern "C" {
#endif

/* C99 leaves both to the compiler. Fixed-point floors (p >> s) need the first, wrapping left shifts the second. */
RT_STATIC_ASSERT((-5 >> 1) == -3, "right shift of a negative number must be arithmetic");
RT_STATIC_ASSERT((int32_t)0xFFFFFFFFu == -1, "conversion to int32_t must wrap");

#ifdef __cplusplus
}
#endif

#endif
