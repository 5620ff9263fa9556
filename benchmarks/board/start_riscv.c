/* RV32 start-up, semihosting and the retired-instruction counter. */
#include "board.h"

extern uint32_t board_bss_start[], board_bss_end[];

static void semihost(int operation, const void *argument)
{
    register int a0 __asm("a0") = operation;
    register const void *a1 __asm("a1") = argument;
    __asm volatile(".balign 16\n"
                   ".option push\n.option norvc\n"
                   "slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n"
                   ".option pop"
                   : "+r"(a0)
                   : "r"(a1)
                   : "memory");
}

static void __attribute__((noreturn)) stop(int status)
{
    const uint32_t block[2] = {0x20026u, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    for (;;)
        semihost(0x20, block); /* SYS_EXIT_EXTENDED */
}

void board_write(const char *text)
{
    semihost(0x04, text); /* SYS_WRITE0 */
}

__attribute__((used, aligned(4))) static void fault(void)
{
    board_write("fault\n");
    stop(99);
}

__attribute__((used, noreturn)) static void begin(void)
{
    for (uint32_t *p = board_bss_start; p < board_bss_end; ++p)
        *p = 0;
    stop(board_main());
}

__attribute__((naked, section(".vectors"), used)) void _start(void)
{
    __asm volatile(".option push\n.option norelax\n"
                   "la gp, __global_pointer$\n"
                   ".option pop\n"
                   "la sp, board_stack_top\n"
                   "la t0, fault\n"
                   ".option push\n.option arch, +zicsr\n"
                   "csrw mtvec, t0\n"
                   ".option pop\n"
                   "j begin\n");
}

void board_clock_start(void)
{
}

void board_clock_stop(void)
{
}

uint64_t board_ticks(void)
{
    uint32_t high, low, again;
    do {
        __asm volatile(".option push\n.option arch, +zicsr\n"
                       "csrr %0, minstreth\n csrr %1, minstret\n csrr %2, minstreth\n"
                       ".option pop"
                       : "=r"(high), "=r"(low), "=r"(again));
    } while (high != again);
    return ((uint64_t)high << 32) | low;
}

__attribute__((naked, noinline)) void board_loop(uint32_t n)
{
    (void)n;
    __asm volatile("1: addi a0, a0, -1\n"
                   " nop\n"
                   " bnez a0, 1b\n"
                   " ret\n");
}
