/*
 * Does to files what its arguments say, so that the shim can be tested without a broker. Words:
 *   print FILE TEXT (by stdio) | raw-rename FROM TO (by a system call of its own)
 *   write FILE TEXT | append FILE TEXT | at FILE OFFSET TEXT | resize FILE SIZE | allocate FILE SIZE
 *   sync FILE_OR_FOLDER | rename FROM TO | unlink FILE | mkdir FOLDER | die
 * `append`, `at` and `sync` keep the file open, as a log would. Each word that fails is printed with its
 * error; `die` is the end by SIGKILL.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int put(const char *file, int flags, long offset, const char *text) {
    int fd = open(file, O_WRONLY | flags, 0600);
    long len = strlen(text);
    if (fd < 0)
        return -1;
    return (offset < 0 ? write(fd, text, len) : pwrite(fd, text, len, offset)) == len ? 0 : -1;
}

static int print(const char *file, const char *text) {
    FILE *out = fopen(file, "w");
    return !out || fputs(text, out) < 0 || fclose(out) ? -1 : 0;
}

static int sync_path(const char *path) {
    int fd = open(path, O_RDONLY);
    return fd < 0 ? -1 : fsync(fd);
}

static int resize(const char *file, long size) {
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    return fd < 0 ? -1 : ftruncate(fd, size);
}

static int allocate(const char *file, long size) {
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    return fd < 0 ? -1 : fallocate(fd, 0, 0, size);
}

int main(int count, char **words) {
    for (int i = 1; i < count;) {
        const char *word = words[i];
        char **rest = words + i + 1;
        int result = -1, taken = 2;
        if (!strcmp(word, "die")) {
            fflush(stdout);
            kill(getpid(), SIGKILL);
        } else if (!strcmp(word, "write")) {
            result = put(rest[0], O_CREAT | O_TRUNC, -1, rest[1]);
        } else if (!strcmp(word, "append")) {
            result = put(rest[0], O_CREAT | O_APPEND, -1, rest[1]);
        } else if (!strcmp(word, "at")) {
            result = put(rest[0], O_CREAT, atol(rest[1]), rest[2]);
            taken = 3;
        } else if (!strcmp(word, "resize")) {
            result = resize(rest[0], atol(rest[1]));
        } else if (!strcmp(word, "allocate")) {
            result = allocate(rest[0], atol(rest[1]));
        } else if (!strcmp(word, "rename")) {
            result = rename(rest[0], rest[1]);
        } else if (!strcmp(word, "print")) {
            result = print(rest[0], rest[1]);
        } else if (!strcmp(word, "raw-rename")) {
            result = syscall(SYS_rename, rest[0], rest[1]);
        } else if (!strcmp(word, "sync")) {
            result = sync_path(rest[0]);
            taken = 1;
        } else if (!strcmp(word, "unlink")) {
            result = unlink(rest[0]);
            taken = 1;
        } else if (!strcmp(word, "mkdir")) {
            result = mkdir(rest[0], 0700);
            taken = 1;
        } else {
            errno = EINVAL;
        }
        if (result < 0)
            printf("%s: %s\n", word, strerror(errno));
        i += taken + 1;
    }
    return 0;
}
