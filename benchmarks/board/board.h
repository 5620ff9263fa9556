/* board.h - a bare board under QEMU: start-up, text through semihosting, an instruction clock. No libc, no division. */
#ifndef BENCH_BOARD_H
#define BENCH_BOARD_H

#include <stdint.h>

/* The program: called after start-up, its result ends the emulation as exit status. */
int board_main(void);

void board_write(const char *text);
/* One line "label hex". */
void board_print(const char *label, uint64_t value);

/* Starts the instruction clock. Ticks grow with every instruction; how many per instruction is calibrated. */
void board_clock_start(void);
void board_clock_stop(void);
uint64_t board_ticks(void);

/* Runs 3 * n + 1 instructions, n >= 1, the return included. */
void board_loop(uint32_t n);

/* Prints ticks around nothing and around loops of known length: "calibrate_N". */
void board_calibrate(void);

/* Lowest address of the stack's memory. */
extern uint32_t board_stack_limit[];

#ifdef __riscv
#define BOARD_STACK_POINTER(p) __asm volatile("mv %0, sp" : "=r"(p))
#else
#define BOARD_STACK_POINTER(p) __asm volatile("mov %0, sp" : "=r"(p))
#endif
#define BOARD_BARRIER() __asm volatile("" ::: "memory")
#define BOARD_MEASURE(ticks, ...)                  \
    do {                                           \
        BOARD_BARRIER();                           \
        const uint64_t start_ticks_ = board_ticks(); \
        BOARD_BARRIER();                           \
        __VA_ARGS__;                               \
        BOARD_BARRIER();                           \
        (ticks) = board_ticks() - start_ticks_;    \
    } while (0)

#endif
