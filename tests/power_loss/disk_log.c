/* A library for LD_PRELOAD that logs what a program does to the files below one directory, in the
 * order of the calls, with the bytes: disk_replay.py replays it.
 *
 * OCTAVO_DISK_LOG_ROOT names the directory, an absolute path without links, and OCTAVO_DISK_LOG the
 * log. A record is one line, "<what> <number> <number> <bytes>\n", and so many bytes after it:
 *
 *   create <inode> 0, path          a file that was not there
 *   size <inode> <size>             its size is set
 *   write <inode> <offset>, data
 *   sync <inode> 0                  fsync of a file
 *   sync_directory 0 0, path
 *   rename 0 0, from, a zero byte, to
 *   remove 0 0, path                of a file or a directory
 *   make_directory 0 0, path
 *
 * One lock is around each call and its record. Paths are cut to what is below the directory. A
 * program that changes files by other calls is found by the replay: its end is not what is on disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(type, name, ...) (__extension__(type(*)(__VA_ARGS__)) dlsym(RTLD_NEXT, name))

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int log_file = -1;

static void fail(const char *what) {
  fprintf(stderr, "disk_log: %s\n", what);
  _exit(99);
}

static void append(const void *data, size_t bytes) {
  if (log_file < 0) {
    const char *path = getenv("OCTAVO_DISK_LOG");
    if (path == NULL) fail("expected OCTAVO_DISK_LOG, found none");
    log_file = REAL(int, "open", const char *, int, ...)(
        path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_file < 0) fail("the log cannot be opened");
  }
  const char *next = data;
  while (bytes > 0) {
    const ssize_t n = REAL(ssize_t, "write", int, const void *, size_t)(log_file, next, bytes);
    if (n <= 0) fail("the log cannot be written");
    next += n;
    bytes -= (size_t)n;
  }
}

static void record(const char *what, unsigned long long a, unsigned long long b, const void *data,
                   size_t bytes) {
  char line[128];
  const int n = snprintf(line, sizeof line, "%s %llu %llu %zu\n", what, a, b, bytes);
  append(line, (size_t)n);
  append(data, bytes);
}

/* What of the path is below the directory; null: nothing. */
static const char *below(const char *path) {
  const char *root = getenv("OCTAVO_DISK_LOG_ROOT");
  if (root == NULL) return NULL;
  const size_t n = strlen(root);
  return strncmp(path, root, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* The same for a path relative to a directory or to the current one. */
static const char *watched(int at, const char *path, char *out) {
  if (path[0] == '/') return below(path);
  char link[64];
  if (at == AT_FDCWD)
    strcpy(link, "/proc/self/cwd");
  else
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
  const ssize_t n = readlink(link, out, PATH_MAX - 1);
  if (n < 0) return NULL;
  snprintf(out + n, PATH_MAX - (size_t)n, "/%s", path);
  return below(out);
}

static int is_watched_file(int file, struct stat *s) {
  char link[64], path[PATH_MAX];
  if (fstat(file, s) != 0 || !(S_ISREG(s->st_mode) || S_ISDIR(s->st_mode))) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = '\0';
  return below(path) != NULL;
}

static int opened(int file, const char *name, int was_there, int is_cut) {
  struct stat s;
  if (file >= 0 && name != NULL && fstat(file, &s) == 0 && S_ISREG(s.st_mode)) {
    if (!was_there) record("create", s.st_ino, 0, name, strlen(name));
    if (was_there && is_cut) record("size", s.st_ino, 0, "", 0);
  }
  return file;
}

static int open_logged(int at, const char *path, int flags, unsigned mode) {
  char whole[PATH_MAX];
  pthread_mutex_lock(&lock);
  const char *name = watched(at, path, whole);
  const int was_there = name == NULL || faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  const int file = opened(REAL(int, "openat", int, const char *, int, ...)(at, path, flags, mode),
                          name, was_there, (flags & O_TRUNC) != 0);
  pthread_mutex_unlock(&lock);
  return file;
}

static unsigned mode_of(int flags, va_list more) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, unsigned) : 0;
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const unsigned mode = mode_of(flags, more);
  va_end(more);
  return open_logged(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const unsigned mode = mode_of(flags, more);
  va_end(more);
  return open_logged(at, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode) {
  char whole[PATH_MAX];
  pthread_mutex_lock(&lock);
  const char *name = watched(AT_FDCWD, path, whole);
  const int was_there = name == NULL || access(path, F_OK) == 0;
  FILE *file = REAL(FILE *, "fopen", const char *, const char *)(path, mode);
  if (file != NULL) opened(fileno(file), name, was_there, strchr(mode, 'w') != NULL);
  pthread_mutex_unlock(&lock);
  return file;
}

static unsigned long long place(int file, const struct stat *s) {
  const int flags = fcntl(file, F_GETFL);
  return (unsigned long long)((flags & O_APPEND) != 0 ? s->st_size : lseek(file, 0, SEEK_CUR));
}

ssize_t write(int file, const void *from, size_t bytes) {
  struct stat s;
  pthread_mutex_lock(&lock);
  const int is_ours = file != log_file && is_watched_file(file, &s);
  const unsigned long long at = is_ours ? place(file, &s) : 0;
  const ssize_t n = REAL(ssize_t, "write", int, const void *, size_t)(file, from, bytes);
  if (is_ours && n > 0) record("write", s.st_ino, at, from, (size_t)n);
  pthread_mutex_unlock(&lock);
  return n;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t n = write(file, parts[i].iov_base, parts[i].iov_len);
    if (n < 0) return all > 0 ? all : n;
    all += n;
    if ((size_t)n < parts[i].iov_len) break;
  }
  return all;
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
  struct stat s;
  pthread_mutex_lock(&lock);
  const int is_ours = is_watched_file(file, &s);
  const ssize_t n =
      REAL(ssize_t, "pwrite", int, const void *, size_t, off_t)(file, from, bytes, at);
  if (is_ours && n > 0) record("write", s.st_ino, (unsigned long long)at, from, (size_t)n);
  pthread_mutex_unlock(&lock);
  return n;
}

int ftruncate(int file, off_t size) {
  struct stat s;
  pthread_mutex_lock(&lock);
  const int result = REAL(int, "ftruncate", int, off_t)(file, size);
  if (result == 0 && is_watched_file(file, &s))
    record("size", s.st_ino, (unsigned long long)size, "", 0);
  pthread_mutex_unlock(&lock);
  return result;
}

static int sync_logged(const char *name, int file) {
  struct stat s;
  char link[64], path[PATH_MAX];
  pthread_mutex_lock(&lock);
  const int result = REAL(int, name, int)(file);
  if (result == 0 && fstat(file, &s) == 0) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t n = readlink(link, path, sizeof path - 2);
    if (n > 0) {
      strcpy(path + n, "/"); /* the directory itself is below, as "" */
      const char *rest = below(path);
      if (rest != NULL && S_ISDIR(s.st_mode))
        record("sync_directory", 0, 0, rest, *rest == '\0' ? 0 : strlen(rest) - 1);
      if (rest != NULL && S_ISREG(s.st_mode)) record("sync", s.st_ino, 0, "", 0);
    }
  }
  pthread_mutex_unlock(&lock);
  return result;
}
int fsync(int file) {
  return sync_logged("fsync", file);
}
int fdatasync(int file) {
  return sync_logged("fdatasync", file);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
  char whole_from[PATH_MAX], whole_to[PATH_MAX], both[2 * PATH_MAX];
  pthread_mutex_lock(&lock);
  const char *a = watched(from_at, from, whole_from), *b = watched(to_at, to, whole_to);
  if ((a == NULL) != (b == NULL)) fail("a rename into or out of the directory");
  const int result =
      REAL(int, "renameat", int, const char *, int, const char *)(from_at, from, to_at, to);
  if (result == 0 && a != NULL) {
    const int n = snprintf(both, sizeof both, "%s%c%s", a, '\0', b);
    record("rename", 0, 0, both, (size_t)n);
  }
  pthread_mutex_unlock(&lock);
  return result;
}
int rename(const char *from, const char *to) {
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int at, const char *path, int flags) {
  char whole[PATH_MAX];
  pthread_mutex_lock(&lock);
  const char *name = watched(at, path, whole);
  const int result = REAL(int, "unlinkat", int, const char *, int)(at, path, flags);
  if (result == 0 && name != NULL) record("remove", 0, 0, name, strlen(name));
  pthread_mutex_unlock(&lock);
  return result;
}
int unlink(const char *path) {
  return unlinkat(AT_FDCWD, path, 0);
}
int rmdir(const char *path) {
  return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
int remove(const char *path) {
  struct stat s;
  const int is_directory = lstat(path, &s) == 0 && S_ISDIR(s.st_mode);
  return unlinkat(AT_FDCWD, path, is_directory ? AT_REMOVEDIR : 0);
}

int mkdirat(int at, const char *path, mode_t mode) {
  char whole[PATH_MAX];
  pthread_mutex_lock(&lock);
  const char *name = watched(at, path, whole);
  const int result = REAL(int, "mkdirat", int, const char *, mode_t)(at, path, mode);
  if (result == 0 && name != NULL) record("make_directory", 0, 0, name, strlen(name));
  pthread_mutex_unlock(&lock);
  return result;
}
int mkdir(const char *path, mode_t mode) {
  return mkdirat(AT_FDCWD, path, mode);
}

/* The names that programs of 64-bit file sizes call. */
#define ALSO(type, name, original, ...) type name(__VA_ARGS__) __attribute__((alias(original)))
ALSO(int, open64, "open", const char *path, int flags, ...);
ALSO(int, openat64, "openat", int at, const char *path, int flags, ...);
ALSO(FILE *, fopen64, "fopen", const char *path, const char *mode);
ALSO(ssize_t, pwrite64, "pwrite", int file, const void *from, size_t bytes, off_t at);
ALSO(int, ftruncate64, "ftruncate", int file, off_t size);
