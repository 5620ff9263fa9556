/* Runs a generated model by commands from standard input, for sanitizers: every buffer has exactly the size that the
 * header asks for. Command: two int32 (which, argument). 1 poison state and scratch with a byte, then init. 2 push n
 * frames, whose bytes follow. 3 finish. Each push and finish answers with its status and, per output, count and frames.
 * All streams share one scratch. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glue.h"

static void *room(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        exit(3);
    memset(p, 0x5A, bytes);
    return p;
}

static void answer(int status, void **out, const int *counts)
{
    const int32_t wide = status;
    fwrite(&wide, sizeof wide, 1, stdout);
    for (int i = 0; i < OUTPUTS; ++i) {
        const int32_t count = counts[i];
        fwrite(&count, sizeof count, 1, stdout);
        fwrite(out[i], (size_t)out_frame[i], (size_t)count, stdout);
        free(out[i]);
    }
}

int main(void)
{
    state_type *st = room(sizeof *st);
    scratch_type *sc = room(sizeof *sc);
    int32_t command[2];

    init(st);
    while (fread(command, sizeof command, 1, stdin) == 1) {
        void *in[INPUTS], *out[OUTPUTS];
        int counts[OUTPUTS];
        const int n = command[0] == 2 && command[1] > 0 ? command[1] : 0;

        if (command[0] == 1) {
            memset(st, command[1], sizeof *st);
            memset(sc, command[1], sizeof *sc);
            init(st);
            continue;
        }
        for (int i = 0; i < OUTPUTS; ++i)
            out[i] = room((size_t)max_out(i, n) * (size_t)out_frame[i]);
        if (command[0] == 2) {
            for (int i = 0; i < INPUTS; ++i) {
                const size_t bytes = (size_t)n * (size_t)in_frame[i];
                in[i] = room(bytes);
                if (fread(in[i], 1, bytes, stdin) != bytes)
                    return 4;
            }
            answer(push(st, sc, in, command[1], out, counts), out, counts);
            for (int i = 0; i < INPUTS; ++i)
                free(in[i]);
        } else {
            answer(finish(st, sc, out, counts), out, counts);
        }
    }
    free(st);
    free(sc);
    return 0;
}
