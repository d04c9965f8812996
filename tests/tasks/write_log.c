/* Writes down, in one order, what a process writes below a folder, and what it has had flushed to the disk.

   Loaded with LD_PRELOAD. WRITE_LOG names the log, WRITE_LOG_BELOW the folder. A record is: one letter, the length of
   the path, the offset, the length of the data, each as 8 bytes, then path and data. Letters: w write, t truncate,
   s flush, c create, u unlink. One lock makes the act and its record one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static __thread int inside;

#define REAL(name, ...) \
    static __VA_ARGS__; \
    if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, name)

static ssize_t raw_write(int fd, const void *data, size_t length) {
    REAL("write", ssize_t (*real)(int, const void *, size_t));
    return real(fd, data, length);
}

static int below(const char *path) {
    const char *folder = getenv("WRITE_LOG_BELOW");
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static void record(char what, const char *path, uint64_t offset, const void *data, uint64_t length) {
    if (log_fd < 0) {
        REAL("open", int (*real)(const char *, int, ...));
        log_fd = real(getenv("WRITE_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    uint64_t head[4] = {(uint64_t)what, strlen(path), offset, length};
    size_t whole = sizeof head + head[1] + length;
    char *line = malloc(whole);
    memcpy(line, head, sizeof head);
    memcpy(line + sizeof head, path, head[1]);
    if (length) memcpy(line + sizeof head + head[1], data, length);
    if (raw_write(log_fd, line, whole) != (ssize_t)whole) abort();
    free(line);
}

#define GUARDED(fd_is_ours, act, note) \
    char path[4096]; \
    if (inside || !(fd_is_ours)) return act; \
    inside = 1; \
    pthread_mutex_lock(&lock); \
    __typeof__(act) done = act; \
    if (done >= 0) { note; } \
    pthread_mutex_unlock(&lock); \
    inside = 0; \
    return done

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    REAL("pwrite64", ssize_t (*real)(int, const void *, size_t, off64_t));
    GUARDED(path_of(fd, path), real(fd, data, length, offset), record('w', path, offset, data, done));
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

ssize_t write(int fd, const void *data, size_t length) {
    GUARDED(path_of(fd, path), raw_write(fd, data, length),
            record('w', path, lseek(fd, 0, SEEK_CUR) - done, data, done));
}

int ftruncate64(int fd, off64_t length) {
    REAL("ftruncate64", int (*real)(int, off64_t));
    GUARDED(path_of(fd, path), real(fd, length), record('t', path, length, NULL, 0));
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fsync(int fd) {
    REAL("fsync", int (*real)(int));
    GUARDED(path_of(fd, path), real(fd), record('s', path, 0, NULL, 0));
}
int fdatasync(int fd) {
    REAL("fdatasync", int (*real)(int));
    GUARDED(path_of(fd, path), real(fd), record('s', path, 0, NULL, 0));
}

int unlink(const char *name) {
    REAL("unlink", int (*real)(const char *));
    GUARDED((strncpy(path, name, 4095), below(name)), real(name), record('u', path, 0, NULL, 0));
}

static int opened(const char *name, int flags, mode_t mode) {
    REAL("open64", int (*real)(const char *, int, ...));
    struct stat now;
    GUARDED((strncpy(path, name, 4095), (flags & O_CREAT) && below(name) && stat(name, &now) != 0),
            real(name, flags, mode), record('c', path, 0, NULL, 0));
}
#define MODE \
    mode_t mode = 0; \
    if (flags & O_CREAT) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }
int open64(const char *name, int flags, ...) { MODE return opened(name, flags, mode); }
int open(const char *name, int flags, ...) { MODE return opened(name, flags, mode); }
