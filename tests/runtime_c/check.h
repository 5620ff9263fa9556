/* check.h - assertions of the runtime's unit tests. A failed check prints where and what; main returns check_result(). */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>

static int check_count, check_failures;

static inline void check_equal(long got, long want, const char *text, const char *file, int line)
{
    ++check_count;
    if (got == want)
        return;
    ++check_failures;
    printf("%s:%d: %s is %ld, expected %ld\n", file, line, text, got, want);
}

static inline void check_bytes(const int8_t *got, const int8_t *want, int n, const char *text, const char *file,
                               int line)
{
    for (int i = 0; i < n; ++i) {
        ++check_count;
        if (got[i] == want[i])
            continue;
        ++check_failures;
        printf("%s:%d: %s[%d] is %d, expected %d\n", file, line, text, i, got[i], want[i]);
    }
}

static inline int check_result(void)
{
    printf("%d checks, %d failed\n", check_count, check_failures);
    return check_failures != 0 || check_count == 0;
}

#define CHECK(got, want) check_equal((long)(got), (long)(want), #got, __FILE__, __LINE__)
/* The first elements of `got` against the literals that follow. */
#define CHECK_CODES(got, ...)                                                 \
    do {                                                                      \
        const int8_t want_[] = {__VA_ARGS__};                                 \
        check_bytes(got, want_, (int)sizeof want_, #got, __FILE__, __LINE__); \
    } while (0)

#endif
