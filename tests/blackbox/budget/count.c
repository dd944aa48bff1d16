/*
 * Counts what each thread of a process asks of the C library: memory, clocks, system calls, copied bytes. It is
 * preloaded into the broker (LD_PRELOAD); the counters are in the file that HERALD_COUNTS names, which the test maps.
 *
 * A copy of a length that the compiler knows is no call, so it is not counted. What a program asks of the kernel
 * without the C library is not counted either: of the broker's paths that is accept and its settings.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ALLOCATIONS, ALLOCATED, FREED, CLOCKS, CALLS, COPIED, COUNTERS };

/* Blocks up to this many bytes are counted by their size. */
#define SIZES 4096

struct thread {
    int64_t tid;
    /* How often it has begun to wait for something to do, and whether it waits now. */
    _Atomic int64_t waits;
    _Atomic int64_t is_waiting;
    int64_t counts[COUNTERS];
    /* Blocks that it has allocated, less those that it has freed, by their size in steps of eight bytes. */
    int64_t live[SIZES / 8 + 1];
};

#define THREADS 1024

struct counts {
    _Atomic int64_t threads;
    struct thread of[THREADS];
};

static struct counts none;
static struct counts *all = &none;
static __thread struct thread *own __attribute__((tls_model("initial-exec")));

static struct thread *mine(void) {
    if (own && own >= all->of && own < all->of + THREADS)
        return own;
    int64_t number = atomic_fetch_add(&all->threads, 1);
    own = &all->of[number < THREADS ? number : THREADS - 1];
    own->tid = gettid();
    return own;
}

#define COUNT(what, by) (mine()->counts[what] += (by))

__attribute__((constructor)) static void open_counts(void) {
    const char *path = getenv("HERALD_COUNTS");
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof(struct counts)))
        return;
    void *mapped = mmap(0, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        all = mapped;
    close(file);
    unsetenv("LD_PRELOAD");
}

/* Memory. Each block begins with its size and with how far behind the beginning of the allocation it is. */

extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

struct head {
    size_t size;
    size_t offset;
};

static struct head *head_of(void *block) { return (struct head *)block - 1; }

static void live(size_t size, int64_t by) {
    if (size <= SIZES)
        mine()->live[(size + 7) / 8] += by;
}

static void *allocate(size_t alignment, size_t size) {
    size_t offset = alignment > sizeof(struct head) ? alignment : sizeof(struct head);
    char *start = __libc_memalign(offset, size + offset);
    if (!start)
        return 0;
    struct head *head = head_of(start + offset);
    head->size = size;
    head->offset = offset;
    COUNT(ALLOCATIONS, 1);
    COUNT(ALLOCATED, size);
    live(size, 1);
    return start + offset;
}

void *malloc(size_t size) { return allocate(0, size); }

void *calloc(size_t count, size_t size) {
    if (size && count > SIZE_MAX / 2 / size)
        return 0;
    char *block = allocate(0, count * size);
    for (size_t at = 0; block && at < count * size; at++)
        block[at] = 0;
    return block;
}

void free(void *block) {
    if (!block)
        return;
    struct head *head = head_of(block);
    COUNT(FREED, head->size);
    live(head->size, -1);
    __libc_free((char *)block - head->offset);
}

static void copy(char *to, const char *from, size_t length);

void *realloc(void *block, size_t size) {
    if (!block)
        return malloc(size);
    size_t before = head_of(block)->size;
    char *other = allocate(0, size);
    if (!other)
        return 0;
    copy(other, block, before < size ? before : size);
    free(block);
    return other;
}

void *aligned_alloc(size_t alignment, size_t size) { return allocate(alignment, size); }
void *memalign(size_t alignment, size_t size) { return allocate(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = allocate(alignment, size);
    return *block ? 0 : 12;
}

size_t malloc_usable_size(void *block) { return block ? head_of(block)->size : 0; }

/* Copies. */

static void copy(char *to, const char *from, size_t length) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
}

void *memcpy(void *to, const void *from, size_t length) {
    COUNT(COPIED, length);
    copy(to, from, length);
    return to;
}

void *memmove(void *to, const void *from, size_t length) {
    COUNT(COPIED, length);
    char *end = to;
    const char *last = from;
    if (end <= last || end >= last + length)
        copy(to, from, length);
    else
        for (size_t at = length; at-- > 0;)
            ((volatile char *)to)[at] = last[at];
    return to;
}

/* Clocks. */

#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (!next)                                                                                                         \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

int clock_gettime(clockid_t clock, struct timespec *now) {
    NEXT(clock_gettime)
    COUNT(CLOCKS, 1);
    return next(clock, now);
}

/* System calls. */

#define CALL(result, name, parameters, arguments)                                                                      \
    result name parameters {                                                                                           \
        NEXT(name)                                                                                                     \
        COUNT(CALLS, 1);                                                                                               \
        return next arguments;                                                                                         \
    }

CALL(ssize_t, read, (int file, void *to, size_t length), (file, to, length))
CALL(ssize_t, write, (int file, const void *from, size_t length), (file, from, length))
CALL(ssize_t, readv, (int file, const struct iovec *to, int count), (file, to, count))
CALL(ssize_t, writev, (int file, const struct iovec *from, int count), (file, from, count))
CALL(ssize_t, pread64, (int file, void *to, size_t length, off_t at), (file, to, length, at))
CALL(ssize_t, pwrite64, (int file, const void *from, size_t length, off_t at), (file, from, length, at))
CALL(ssize_t, recv, (int file, void *to, size_t length, int flags), (file, to, length, flags))
CALL(ssize_t, recvmsg, (int file, struct msghdr *to, int flags), (file, to, flags))
CALL(ssize_t, send, (int file, const void *from, size_t length, int flags), (file, from, length, flags))
CALL(ssize_t, sendmsg, (int file, const struct msghdr *from, int flags), (file, from, flags))
CALL(int, epoll_ctl, (int file, int how, int of, struct epoll_event *event), (file, how, of, event))
CALL(int, fsync, (int file), (file))
CALL(int, fdatasync, (int file), (file))
CALL(int, close, (int file), (file))

static void begin_wait(void) {
    mine()->is_waiting = 1;
    mine()->waits++;
}

int epoll_wait(int file, struct epoll_event *events, int most, int ms) {
    NEXT(epoll_wait)
    COUNT(CALLS, 1);
    if (ms)
        begin_wait();
    int found = next(file, events, most, ms);
    mine()->is_waiting = 0;
    return found;
}

/* Futexes come this way. */
long syscall(long number, ...) {
    static long (*next)(long, ...);
    if (!next)
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list given;
    va_start(given, number);
    long a = va_arg(given, long), b = va_arg(given, long), c = va_arg(given, long);
    long d = va_arg(given, long), e = va_arg(given, long), f = va_arg(given, long);
    va_end(given);
    COUNT(CALLS, 1);
    int waits = number == SYS_futex && (b & FUTEX_CMD_MASK & ~FUTEX_WAIT_BITSET) == FUTEX_WAIT;
    if (waits)
        begin_wait();
    long result = next(number, a, b, c, d, e, f);
    if (waits)
        mine()->is_waiting = 0;
    return result;
}
