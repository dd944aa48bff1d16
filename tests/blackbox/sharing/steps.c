// Runs threads of a process one instruction at a time, and writes the registers of each before every instruction.
//
//     steps PID FILE THREAD…
//
// FILE gets records of 18 numbers of 64 bits: the thread, RIP, the 16 registers in the order of their numbers. A record of the
// thread 0 is a mark: SIGUSR1 asks for one, and a line on standard output says that the file has it. SIGTERM ends: the threads run
// on as before.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void record(FILE *file, pid_t thread) {
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, thread, 0, &r)) fail("PTRACE_GETREGS");
    uint64_t values[18] = {thread, r.rip, r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi,
                           r.rdi,  r.r8,  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15};
    if (fwrite(values, sizeof values, 1, file) != 1) fail("writing");
}

// Lets a thread run on as before. A step that is over as the thread stops has left it a SIGTRAP, which would end the process.
static void leave(pid_t thread) {
    int status;
    struct __ptrace_peeksiginfo_args first = {.off = 0, .flags = 0, .nr = 1};
    siginfo_t pending;
    if (ptrace(PTRACE_INTERRUPT, thread, 0, 0) && errno != ESRCH) fail("PTRACE_INTERRUPT");
    if (waitpid(thread, &status, __WALL) < 0 || !WIFSTOPPED(status)) return;
    while (ptrace(PTRACE_PEEKSIGINFO, thread, &first, &pending) == 1 && pending.si_signo == SIGTRAP) {
        if (ptrace(PTRACE_CONT, thread, 0, 0)) fail("PTRACE_CONT");
        if (waitpid(thread, &status, __WALL) < 0 || !WIFSTOPPED(status)) return;
    }
    if (ptrace(PTRACE_DETACH, thread, 0, 0) && errno != ESRCH) fail("PTRACE_DETACH");
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: steps PID FILE THREAD...\n");
        return 2;
    }
    FILE *file = fopen(arguments[2], "a");  // Who reads it cuts off what is read.
    if (!file) fail(arguments[2]);
    setvbuf(file, NULL, _IOFBF, 1 << 20);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    for (int at = 3; at < count; at++) {
        if (ptrace(PTRACE_SEIZE, atoi(arguments[at]), 0, 0)) fail("PTRACE_SEIZE");
        if (ptrace(PTRACE_INTERRUPT, atoi(arguments[at]), 0, 0)) fail("PTRACE_INTERRUPT");
    }
    // On one core the tracer and the thread that it steps change places without waking another core.
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    if (sched_setaffinity(0, sizeof core, &core)) fail("sched_setaffinity");
    for (int at = 3; at < count; at++)
        if (sched_setaffinity(atoi(arguments[at]), sizeof core, &core)) fail("sched_setaffinity");
    puts("attached");
    fflush(stdout);
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, WNOHANG | __WALL);
        if (thread > 0) {
            if (!WIFSTOPPED(status)) continue;
            int is_event = status >> 16, signal = WSTOPSIG(status);
            record(file, thread);
            if (is_event || signal == SIGTRAP) signal = 0;
            // A thread that is gone is reported by the next wait.
            if (ptrace(PTRACE_SINGLESTEP, thread, 0, signal) && errno != ESRCH) fail("PTRACE_SINGLESTEP");
            continue;
        }
        if (thread < 0) return 0;  // The process has ended.
        switch (sigwaitinfo(&signals, NULL)) {
        case SIGUSR1: {
            uint64_t mark[18] = {0};
            if (fwrite(mark, sizeof mark, 1, file) != 1 || fflush(file)) fail("writing");
            puts("mark");
            fflush(stdout);
            break;
        }
        case SIGTERM:
            for (int at = 3; at < count; at++) leave(atoi(arguments[at]));
            return fclose(file) ? 1 : 0;
        }
    }
}
