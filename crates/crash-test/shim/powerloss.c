/*
 * A preloaded library that keeps a journal of what a process does to the files of one folder, so that
 * what was not synced can be taken back after the process was killed, as a loss of power would; and that
 * makes writes and syncs fail, and syncs take long, on demand.
 *
 * Environment: CRASH_SHIM_FOLDER, the absolute path of the folder that is watched; CRASH_SHIM_SIDE, an
 * existing folder outside of it on the same file system, for:
 *   journal   records of all operations, in their order (struct record; read by src/faults/journal.rs)
 *   control   faults to inject (struct control; written by src/faults/shim.rs)
 *   kept      a hard link, named by inode number, to each file that was unlinked or replaced
 *
 * Invariants: an operation is in the journal before it has happened, a sync only after it has succeeded.
 * A sync covers the records before it began. Operations are serialised, syncs are not.
 *
 * Two ways lead here: the symbols of the C library, which are replaced, and system calls that are made
 * past them (by stdio, by programs that bring their own), which a seccomp filter turns into a signal.
 *
 * Deliberately absent: io_uring, second names of a file, programs that the process starts. Shared writable
 * mappings and O_SYNC are not followed, and are noted as such. The reader of the journal compares sizes and
 * finds what was missed. The filter knows x86-64 only; elsewhere there are only the symbols.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH_LIMIT 4096
#define EXPORT __attribute__((visibility("default")))

enum kind {
    WRITE = 1,   /* a: offset, b: size before; first: bytes before, second: bytes written */
    RESIZE = 2,  /* a: size after, b: size before; first: bytes that were cut off */
    CREATE = 3,  /* first: path */
    MKDIR = 4,   /* first: path */
    RENAME = 5,  /* first: path before, second: path after */
    UNLINK = 6,  /* first: path */
    RMDIR = 7,   /* first: path */
    SYNC = 8,    /* a: number of records that it covers */
    MISSED = 9   /* first: what cannot be followed */
};

struct record {
    uint32_t magic;
    uint32_t kind;
    uint64_t inode;
    uint64_t a;
    uint64_t b;
    uint64_t first_len;
    uint64_t second_len;
};

struct control {
    uint32_t disk_is_full;     /* not 0: writes, allocations and creations fail with ENOSPC */
    uint32_t syncs_until_fail; /* n > 0: the n-th sync from now and all after it fail with EIO */
    uint32_t sync_fails;       /* not 0: syncs fail */
    uint32_t refused_writes;   /* counts ENOSPC */
    uint32_t refused_syncs;    /* counts EIO */
    uint32_t sync_delay_ms;    /* how much longer each sync takes */
};

static const uint32_t MAGIC = 0x4c525750;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_LIMIT];
static size_t folder_len; /* 0: nothing is watched */
static char side[PATH_LIMIT];
static int journal = -1;
static uint64_t records;
static struct control *control;

/* ---- the kernel */

#ifdef __x86_64__
/* The library's only system call instruction, so that the filter knows it by its address. */
long shim_call(long number, long a, long b, long c, long d, long e, long f);
extern const char shim_called[];
__asm__(".text\n"
        ".hidden shim_call\n"
        ".hidden shim_called\n"
        ".globl shim_call, shim_called\n"
        "shim_call:\n"
        "  mov %rdi, %rax\n"
        "  mov %rsi, %rdi\n"
        "  mov %rdx, %rsi\n"
        "  mov %rcx, %rdx\n"
        "  mov %r8, %r10\n"
        "  mov %r9, %r8\n"
        "  mov 8(%rsp), %r9\n"
        "  syscall\n"
        "shim_called:\n"
        "  ret\n");

static long call_kernel(long number, long a, long b, long c, long d, long e, long f) {
    long result = shim_call(number, a, b, c, d, e, f);
    if (result < 0 && result > -4096) {
        errno = -result;
        return -1;
    }
    return result;
}
#define PADDED(number, a, b, c, d, e, f, ...)                                                          \
    call_kernel(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define kernel(...) PADDED(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#else
#define kernel(...) syscall(__VA_ARGS__)
#endif

/* ---- the journal */

static void give_up(const char *what) {
    static const char prefix[] = "powerloss shim: ";
    kernel(SYS_write, 2, prefix, sizeof prefix - 1);
    kernel(SYS_write, 2, what, strlen(what));
    kernel(SYS_write, 2, "\n", 1);
    abort();
}

/* With the lock held. */
static void note(enum kind kind, uint64_t inode, uint64_t a, uint64_t b, const void *first,
                 size_t first_len, const void *second, size_t second_len) {
    struct record record = {MAGIC, kind, inode, a, b, first_len, second_len};
    struct iovec parts[3] = {{&record, sizeof record},
                             {(void *)first, first_len},
                             {(void *)second, second_len}};
    size_t total = sizeof record + first_len + second_len;
    if (kernel(SYS_writev, journal, parts, 3) != (long)total)
        give_up("the journal cannot be written");
    records++;
}

static void note_path(enum kind kind, uint64_t inode, const char *path) {
    note(kind, inode, 0, 0, path, strlen(path), NULL, 0);
}

static void follow_raw_calls(void);

__attribute__((constructor)) static void start(void) {
    const char *watched = getenv("CRASH_SHIM_FOLDER");
    const char *beside = getenv("CRASH_SHIM_SIDE");
    if (!watched || !beside)
        return;
    if (strlen(watched) >= sizeof folder || strlen(beside) >= sizeof side - 64)
        give_up("a folder's path is too long");
    strcpy(folder, watched);
    strcpy(side, beside);
    char path[PATH_LIMIT];
    snprintf(path, sizeof path, "%s/kept", side);
    kernel(SYS_mkdirat, AT_FDCWD, path, 0700);
    snprintf(path, sizeof path, "%s/journal", side);
    journal = kernel(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/control", side);
    int fd = kernel(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0 || fd < 0 || kernel(SYS_ftruncate, fd, sizeof *control))
        give_up("the side folder cannot be written");
    control = (void *)kernel(SYS_mmap, NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        give_up("the control file cannot be mapped");
    kernel(SYS_close, fd);
    folder_len = strlen(folder);
    follow_raw_calls();
}

/* ---- which files are watched */

/* Whether an absolute path is in the folder; if so `*path` becomes relative to it. */
static int is_inside(const char **path) {
    if (!folder_len || strncmp(*path, folder, folder_len) || (*path)[folder_len] != '/')
        return 0;
    *path += folder_len + 1;
    return 1;
}

/* Takes "." and ".." out of an absolute path, in place. */
static void normalise(char *path) {
    char *out = path;
    for (char *in = path; *in;) {
        while (*in == '/')
            in++;
        size_t len = strcspn(in, "/");
        if (len == 2 && in[0] == '.' && in[1] == '.') {
            while (out > path && *--out != '/')
                ;
        } else if (len && !(len == 1 && in[0] == '.')) {
            *out++ = '/';
            memmove(out, in, len);
            out += len;
        }
        in += len;
    }
    *out = 0;
}

/* The path that `path` means, relative to the folder, in `buffer`; NULL if it is not in the folder. */
static const char *resolve(int directory, const char *path, char *buffer) {
    size_t base = 0;
    if (!folder_len || !path)
        return NULL;
    if (path[0] != '/') {
        char link[64] = "/proc/self/cwd";
        if (directory != AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t got = kernel(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_LIMIT - 1);
        if (got < 0)
            return NULL;
        base = got;
        buffer[base++] = '/';
    }
    if (base + strlen(path) >= PATH_LIMIT)
        return NULL;
    strcpy(buffer + base, path);
    normalise(buffer);
    const char *relative = buffer;
    return is_inside(&relative) ? relative : NULL;
}

/* Whether a descriptor is of a regular file or, if wanted, a directory in the folder or the folder. */
static int is_watched(int fd, struct stat *status, int directories_too) {
    int saved = errno;
    int watched = 0;
    if (folder_len && fd != journal && !kernel(SYS_fstat, fd, status) &&
        (S_ISREG(status->st_mode) || (directories_too && S_ISDIR(status->st_mode)))) {
        char link[64], path[PATH_LIMIT];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t got = kernel(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
        if (got > 0) {
            path[got] = 0;
            const char *relative = path;
            watched = is_inside(&relative) || !strcmp(path, folder);
        }
    }
    errno = saved;
    return watched;
}

static int disk_is_full(void) {
    if (!control || !__atomic_load_n(&control->disk_is_full, __ATOMIC_SEQ_CST))
        return 0;
    __atomic_add_fetch(&control->refused_writes, 1, __ATOMIC_SEQ_CST);
    errno = ENOSPC;
    return 1;
}

/* ---- content */

/* Bytes of a file from `offset`, at most `len`; the caller frees them. Its descriptor may be write-only. */
static char *content(int fd, uint64_t offset, uint64_t len, uint64_t size, size_t *got) {
    *got = 0;
    if (offset >= size || !len)
        return NULL;
    if (len > size - offset)
        len = size - offset;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = kernel(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    char *bytes = malloc(len);
    if (reader < 0 || !bytes)
        give_up("a file cannot be read before it is overwritten");
    while (*got < len) {
        ssize_t more = kernel(SYS_pread64, reader, bytes + *got, len - *got, offset + *got);
        if (more <= 0)
            give_up("a file is shorter than it says");
        *got += more;
    }
    kernel(SYS_close, reader);
    return bytes;
}

static void note_write(int fd, const struct stat *status, uint64_t offset, const void *bytes, size_t len) {
    size_t old_len;
    char *old = content(fd, offset, len, status->st_size, &old_len);
    note(WRITE, status->st_ino, offset, status->st_size, old, old_len, bytes, len);
    free(old);
}

static void note_resize(int fd, const struct stat *status, uint64_t size) {
    uint64_t before = status->st_size;
    size_t old_len;
    char *old = content(fd, size, before, before, &old_len);
    note(RESIZE, status->st_ino, size, before, old, old_len, NULL, 0);
    free(old);
}

/* Writes at `offset`, or at the file's position if that is negative. */
static ssize_t write_bytes(int fd, const void *bytes, size_t len, off_t offset) {
    struct stat status;
    ssize_t result;
    if (!is_watched(fd, &status, 0))
        return offset < 0 ? kernel(SYS_write, fd, bytes, len) : kernel(SYS_pwrite64, fd, bytes, len, offset);
    if (disk_is_full())
        return -1;
    pthread_mutex_lock(&lock);
    kernel(SYS_fstat, fd, &status);
    off_t where = offset;
    if (where < 0)
        where = kernel(SYS_fcntl, fd, F_GETFL) & O_APPEND ? status.st_size : kernel(SYS_lseek, fd, 0, SEEK_CUR);
    note_write(fd, &status, where, bytes, len);
    result = kernel(SYS_pwrite64, fd, bytes, len, where);
    if (result >= 0 && offset < 0)
        kernel(SYS_lseek, fd, where + result, SEEK_SET);
    if (result != (ssize_t)len)
        note_path(MISSED, status.st_ino, "a write that the disk did not take");
    pthread_mutex_unlock(&lock);
    return result;
}

static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t offset) {
    struct stat status;
    if (!is_watched(fd, &status, 0))
        return offset < 0 ? kernel(SYS_writev, fd, parts, count)
                          : kernel(SYS_pwritev, fd, parts, count, offset, 0);
    size_t len = 0, done = 0;
    for (int i = 0; i < count; i++)
        len += parts[i].iov_len;
    char *bytes = malloc(len + 1);
    if (!bytes)
        give_up("out of memory");
    for (int i = 0; i < count; i++) {
        memcpy(bytes + done, parts[i].iov_base, parts[i].iov_len);
        done += parts[i].iov_len;
    }
    ssize_t result = write_bytes(fd, bytes, len, offset);
    int saved = errno;
    free(bytes);
    errno = saved;
    return result;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t len) { return write_bytes(fd, bytes, len, -1); }
EXPORT ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return write_bytes(fd, bytes, len, offset); }
EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t offset) { return write_bytes(fd, bytes, len, offset); }
EXPORT ssize_t writev(int fd, const struct iovec *parts, int count) { return write_parts(fd, parts, count, -1); }
EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return write_parts(fd, parts, count, offset); }
EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return write_parts(fd, parts, count, offset); }
EXPORT ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    struct stat status;
    if (is_watched(fd, &status, 0) && flags) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return flags ? kernel(SYS_pwritev2, fd, parts, count, offset, 0, flags) : write_parts(fd, parts, count, offset);
}
EXPORT ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return pwritev2(fd, parts, count, offset, flags);
}

/* Callers fall back to reading and writing. */
EXPORT ssize_t copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t len, unsigned flags) {
    struct stat status;
    if (is_watched(out, &status, 0)) {
        errno = EXDEV;
        return -1;
    }
    return kernel(SYS_copy_file_range, in, in_offset, out, out_offset, len, flags);
}
EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t len) {
    struct stat status;
    if (is_watched(out, &status, 0)) {
        errno = EINVAL;
        return -1;
    }
    return kernel(SYS_sendfile, out, in, offset, len);
}
EXPORT ssize_t sendfile64(int out, int in, off_t *offset, size_t len) { return sendfile(out, in, offset, len); }

EXPORT int ftruncate(int fd, off_t size) {
    struct stat status;
    if (!is_watched(fd, &status, 0))
        return kernel(SYS_ftruncate, fd, size);
    if (size > status.st_size && disk_is_full())
        return -1;
    pthread_mutex_lock(&lock);
    kernel(SYS_fstat, fd, &status);
    note_resize(fd, &status, size);
    int result = kernel(SYS_ftruncate, fd, size);
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORT int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

EXPORT int truncate(const char *path, off_t size) {
    int fd = kernel(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = ftruncate(fd, size);
    int saved = errno;
    kernel(SYS_close, fd);
    errno = saved;
    return result;
}
EXPORT int truncate64(const char *path, off_t size) { return truncate(path, size); }

EXPORT int fallocate(int fd, int mode, off_t offset, off_t len) {
    struct stat status;
    if (!is_watched(fd, &status, 0))
        return kernel(SYS_fallocate, fd, mode, offset, len);
    if (disk_is_full())
        return -1;
    pthread_mutex_lock(&lock);
    kernel(SYS_fstat, fd, &status);
    off_t end = offset + len;
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        off_t last = (mode & FALLOC_FL_KEEP_SIZE) && end > status.st_size ? status.st_size : end;
        char *zeros = last > offset ? calloc(1, last - offset) : NULL;
        if (zeros)
            note_write(fd, &status, offset, zeros, last - offset);
        free(zeros);
    } else if (mode & ~FALLOC_FL_KEEP_SIZE) {
        note_path(MISSED, status.st_ino, "fallocate of an unusual mode");
    } else if (!(mode & FALLOC_FL_KEEP_SIZE) && end > status.st_size) {
        note_resize(fd, &status, end);
    }
    int result = kernel(SYS_fallocate, fd, mode, offset, len);
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORT int fallocate64(int fd, int mode, off_t offset, off_t len) { return fallocate(fd, mode, offset, len); }
EXPORT int posix_fallocate(int fd, off_t offset, off_t len) { return fallocate(fd, 0, offset, len) ? errno : 0; }
EXPORT int posix_fallocate64(int fd, off_t offset, off_t len) { return posix_fallocate(fd, offset, len); }

EXPORT void *mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset) {
    struct stat status;
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED) && is_watched(fd, &status, 0)) {
        pthread_mutex_lock(&lock);
        note_path(MISSED, status.st_ino, "a shared writable mapping");
        pthread_mutex_unlock(&lock);
    }
    return (void *)kernel(SYS_mmap, address, len, protection, flags, fd, offset);
}
EXPORT void *mmap64(void *address, size_t len, int protection, int flags, int fd, off_t offset) {
    return mmap(address, len, protection, flags, fd, offset);
}

/* ---- syncs */

static int sync_fails(void) {
    if (__atomic_load_n(&control->syncs_until_fail, __ATOMIC_SEQ_CST) &&
        !__atomic_sub_fetch(&control->syncs_until_fail, 1, __ATOMIC_SEQ_CST))
        __atomic_store_n(&control->sync_fails, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&control->sync_fails, __ATOMIC_SEQ_CST))
        return 0;
    __atomic_add_fetch(&control->refused_syncs, 1, __ATOMIC_SEQ_CST);
    errno = EIO;
    return 1;
}

static void delay_sync(void) {
    uint32_t ms = __atomic_load_n(&control->sync_delay_ms, __ATOMIC_SEQ_CST);
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (ms && nanosleep(&left, &left) && errno == EINTR) {
    }
}

static int sync_file(int fd, long number) {
    struct stat status;
    if (!is_watched(fd, &status, 1))
        return kernel(number, fd);
    pthread_mutex_lock(&lock);
    uint64_t covered = records;
    int fails = sync_fails();
    pthread_mutex_unlock(&lock);
    if (fails || kernel(number, fd))
        return -1;
    delay_sync();
    pthread_mutex_lock(&lock);
    note(SYNC, status.st_ino, covered, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int fsync(int fd) { return sync_file(fd, SYS_fsync); }
EXPORT int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }
/* sync_file_range promises nothing about a loss of power, so it needs no record. */

/* ---- names */

static int exists(int directory, const char *path, struct stat *status) {
    int saved = errno;
    int found = !kernel(SYS_newfstatat, directory, path, status, AT_SYMLINK_NOFOLLOW);
    errno = saved;
    return found;
}

/* Keeps a file that is about to lose its name. */
static void keep(int directory, const char *path, const struct stat *status) {
    if (!S_ISREG(status->st_mode))
        return;
    char kept[PATH_LIMIT + 64];
    snprintf(kept, sizeof kept, "%s/kept/%llu", side, (unsigned long long)status->st_ino);
    int saved = errno;
    if (kernel(SYS_linkat, directory, path, AT_FDCWD, kept, 0) && errno != EEXIST)
        give_up("a file cannot be kept before it is unlinked");
    errno = saved;
}

static int open_file(int directory, const char *path, int flags, mode_t mode) {
    char buffer[PATH_LIMIT];
    const char *name = resolve(directory, path, buffer);
    if (!name || !(flags & (O_CREAT | O_TRUNC | O_SYNC | O_DSYNC)))
        return kernel(SYS_openat, directory, path, flags, mode);
    struct stat status;
    pthread_mutex_lock(&lock);
    int existed = exists(directory, path, &status);
    int fd = -1;
    if (existed || !disk_is_full()) {
        /* Truncated below, after the content is noted. */
        fd = kernel(SYS_openat, directory, path, flags & ~O_TRUNC, mode);
    }
    if (fd >= 0 && !kernel(SYS_fstat, fd, &status) && S_ISREG(status.st_mode)) {
        if (!existed)
            note_path(CREATE, status.st_ino, name);
        if ((flags & O_SYNC) == O_SYNC || (flags & O_DSYNC))
            note_path(MISSED, status.st_ino, "a file opened with O_SYNC or O_DSYNC");
        if ((flags & O_TRUNC) && status.st_size) {
            note_resize(fd, &status, 0);
            kernel(SYS_ftruncate, fd, 0);
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPEN_MODE(flags)                                                                               \
    mode_t mode = 0;                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                             \
        va_list rest;                                                                                  \
        va_start(rest, flags);                                                                         \
        mode = va_arg(rest, mode_t);                                                                   \
        va_end(rest);                                                                                  \
    }

EXPORT int open(const char *path, int flags, ...) { OPEN_MODE(flags) return open_file(AT_FDCWD, path, flags, mode); }
EXPORT int open64(const char *path, int flags, ...) { OPEN_MODE(flags) return open_file(AT_FDCWD, path, flags, mode); }
EXPORT int openat(int directory, const char *path, int flags, ...) { OPEN_MODE(flags) return open_file(directory, path, flags, mode); }
EXPORT int openat64(int directory, const char *path, int flags, ...) { OPEN_MODE(flags) return open_file(directory, path, flags, mode); }
EXPORT int creat(const char *path, mode_t mode) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EXPORT int creat64(const char *path, mode_t mode) { return creat(path, mode); }

EXPORT int mkdirat(int directory, const char *path, mode_t mode) {
    char buffer[PATH_LIMIT];
    const char *name = resolve(directory, path, buffer);
    if (!name)
        return kernel(SYS_mkdirat, directory, path, mode);
    if (disk_is_full())
        return -1;
    pthread_mutex_lock(&lock);
    int result = kernel(SYS_mkdirat, directory, path, mode);
    struct stat status;
    if (!result && exists(directory, path, &status))
        note_path(MKDIR, status.st_ino, name);
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    char from_buffer[PATH_LIMIT], to_buffer[PATH_LIMIT];
    const char *from_name = resolve(from_directory, from, from_buffer);
    const char *to_name = resolve(to_directory, to, to_buffer);
    struct stat moved, replaced;
    if (!from_name && !to_name)
        return kernel(SYS_renameat2, from_directory, from, to_directory, to, flags);
    if (!from_name || !to_name || (flags & ~1u))
        give_up("a rename into, out of, or by exchange within the folder");
    pthread_mutex_lock(&lock);
    int known = exists(from_directory, from, &moved);
    if (known && !flags && exists(to_directory, to, &replaced))
        keep(to_directory, to, &replaced);
    int result = kernel(SYS_renameat2, from_directory, from, to_directory, to, flags);
    if (!result && known)
        note(RENAME, moved.st_ino, 0, 0, from_name, strlen(from_name), to_name, strlen(to_name));
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORT int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    return renameat2(from_directory, from, to_directory, to, 0);
}
EXPORT int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    char buffer[PATH_LIMIT];
    if (resolve(to_directory, to, buffer)) {
        /* Second names are not followed; callers copy instead. */
        errno = EPERM;
        return -1;
    }
    return kernel(SYS_linkat, from_directory, from, to_directory, to, flags);
}
EXPORT int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int unlinkat(int directory, const char *path, int flags) {
    char buffer[PATH_LIMIT];
    const char *name = resolve(directory, path, buffer);
    struct stat status;
    if (!name || !exists(directory, path, &status))
        return kernel(SYS_unlinkat, directory, path, flags);
    pthread_mutex_lock(&lock);
    keep(directory, path, &status);
    int result = kernel(SYS_unlinkat, directory, path, flags);
    if (!result)
        note_path(flags & AT_REMOVEDIR ? RMDIR : UNLINK, status.st_ino, name);
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
EXPORT int remove(const char *path) {
    struct stat status;
    return unlinkat(AT_FDCWD, path, exists(AT_FDCWD, path, &status) && S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
}

/* ---- system calls past the symbols */

#ifdef __x86_64__
static const unsigned followed[] = {
    SYS_write,  SYS_pwrite64,  SYS_writev,   SYS_pwritev,   SYS_pwritev2,  SYS_open,            SYS_openat,
    SYS_creat,  SYS_truncate,  SYS_ftruncate, SYS_fallocate, SYS_rename,   SYS_renameat,        SYS_renameat2,
    SYS_unlink, SYS_unlinkat,  SYS_rmdir,    SYS_mkdir,     SYS_mkdirat,   SYS_link,            SYS_linkat,
    SYS_fsync,  SYS_fdatasync, SYS_sendfile, SYS_copy_file_range,
};
#define FOLLOWED (sizeof followed / sizeof *followed)

static long follow(long number, long a, long b, long c, long d, long e, long f) {
    switch (number) {
    case SYS_write: return write(a, (void *)b, c);
    case SYS_pwrite64: return pwrite(a, (void *)b, c, d);
    case SYS_writev: return writev(a, (void *)b, c);
    case SYS_pwritev: return pwritev(a, (void *)b, c, d);
    case SYS_pwritev2: return pwritev2(a, (void *)b, c, d, f);
    case SYS_open: return open_file(AT_FDCWD, (char *)a, b, c);
    case SYS_openat: return open_file(a, (char *)b, c, d);
    case SYS_creat: return creat((char *)a, b);
    case SYS_truncate: return truncate((char *)a, b);
    case SYS_ftruncate: return ftruncate(a, b);
    case SYS_fallocate: return fallocate(a, b, c, d);
    case SYS_rename: return rename((char *)a, (char *)b);
    case SYS_renameat: return renameat(a, (char *)b, c, (char *)d);
    case SYS_renameat2: return renameat2(a, (char *)b, c, (char *)d, e);
    case SYS_unlink: return unlink((char *)a);
    case SYS_unlinkat: return unlinkat(a, (char *)b, c);
    case SYS_rmdir: return rmdir((char *)a);
    case SYS_mkdir: return mkdir((char *)a, b);
    case SYS_mkdirat: return mkdirat(a, (char *)b, c);
    case SYS_link: return link((char *)a, (char *)b);
    case SYS_linkat: return linkat(a, (char *)b, c, (char *)d, e);
    case SYS_fsync: return fsync(a);
    case SYS_fdatasync: return fdatasync(a);
    case SYS_sendfile: return sendfile(a, b, (void *)c, d);
    case SYS_copy_file_range: return copy_file_range(a, (void *)b, c, (void *)d, e, f);
    default: return kernel(number, a, b, c, d, e, f);
    }
}

/* Runs in the thread that made the call, which holds none of our locks. */
static void on_raw_call(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    int saved = errno;
    long result = follow(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                         registers[REG_R10], registers[REG_R8], registers[REG_R9]);
    registers[REG_RAX] = result == -1 ? -errno : result;
    errno = saved;
}

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define FIELD(name) LOAD(offsetof(struct seccomp_data, name))
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)

/* All but our own instruction: the calls above become SIGSYS. */
static void follow_raw_calls(void) {
    struct sigaction action = {.sa_sigaction = on_raw_call, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    const uint64_t own = (uint64_t)shim_called;
    const unsigned address = offsetof(struct seccomp_data, instruction_pointer);
    struct sock_filter filter[8 + FOLLOWED + 1] = {
        FIELD(arch),
        IF_EQUAL(AUDIT_ARCH_X86_64, 0, FOLLOWED + 5),
        LOAD(address),
        IF_EQUAL((uint32_t)own, 0, 2),
        LOAD(address + 4),
        IF_EQUAL((uint32_t)(own >> 32), FOLLOWED + 1, 0),
        FIELD(nr),
    };
    size_t len = 7;
    for (size_t i = 0; i < FOLLOWED; i++, len++)
        filter[len] = (struct sock_filter)IF_EQUAL(followed[i], FOLLOWED - i, 0);
    filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {len, filter};
    if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        give_up("the filter of system calls cannot be set");
}
#else
static void follow_raw_calls(void) {}
#endif
