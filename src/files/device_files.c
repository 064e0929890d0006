/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shows a program the files of the device that does not exist: /dev/infiniband and /sys/class/infiniband.
 *
 * Some programs (UCX, NCCL) take a device only if they find its character device, and learn its PCI
 * numbers and GID types from sysfs. This library is preloaded by `softmlx5 run`. Paths that begin with
 * one of these folders are looked for below the folder `ibdev` beside it; all others go to the C library
 * as they are. Nothing is written, so there is nothing to clean up. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const folders[] = { "/dev/infiniband", "/sys/class/infiniband", "/sys/devices/softmlx5" };

/* Where the folder `ibdev` is: beside this library. */
static int own_folder(const char **path)
{
	const char *slash;
	Dl_info info;

	if (!dladdr(folders, &info) || !info.dli_fname)
		return -1;
	*path = info.dli_fname;
	slash = strrchr(info.dli_fname, '/');
	return slash ? (int)(slash - info.dli_fname) : -1;
}

/* RETURN the path to use: what was asked for, or buf. */
static const char *shown(const char *path, char buf[PATH_MAX])
{
	const char *own;
	int own_len;

	if (!path || path[0] != '/')
		return path;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		size_t len = strlen(folders[i]);

		if (strncmp(path, folders[i], len) || (path[len] && path[len] != '/'))
			continue;
		own_len = own_folder(&own);
		if (own_len < 0 || snprintf(buf, PATH_MAX, "%.*s/ibdev%s", own_len, own, path) >= PATH_MAX)
			return path;
		return buf;
	}
	return path;
}

/* Names that no header declares: what programs built long ago, or with checks of sizes, call. */
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
ssize_t __readlink_chk(const char *path, char *out, size_t len, size_t room);
char *__realpath_chk(const char *path, char *out, size_t room);

#define CALLS(X) \
	X(stat) X(stat64) X(lstat) X(lstat64) X(fstatat) X(fstatat64) X(statx) X(access) X(faccessat) \
	X(readlink) X(__readlink_chk) X(readlinkat) X(realpath) X(__realpath_chk) X(canonicalize_file_name) \
	X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2) X(__openat_2) X(__openat64_2) \
	X(fopen) X(fopen64) X(opendir) X(scandir) X(scandir64)

/* What would have been called without us: the C library, or a sanitizer. */
struct real {
#define MEMBER(name) __typeof__(name) *name;
	CALLS(MEMBER)
};

static struct real real;
static int found;

/* At the start, because looking up later is not allowed everywhere that these may be called. */
static __attribute__((constructor)) void find(void)
{
#define FIND(name) real.name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);
	CALLS(FIND)
	__atomic_store_n(&found, 1, __ATOMIC_RELEASE);
}

static const struct real *next(void)
{
	if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE))
		find();
	return &real;
}

/* ---- what a file is ---- */

int stat(const char *path, struct stat *st)
{
	char buf[PATH_MAX];

	return next()->stat(shown(path, buf), st);
}

int stat64(const char *path, struct stat64 *st)
{
	char buf[PATH_MAX];

	return next()->stat64(shown(path, buf), st);
}

int lstat(const char *path, struct stat *st)
{
	char buf[PATH_MAX];

	return next()->lstat(shown(path, buf), st);
}

int lstat64(const char *path, struct stat64 *st)
{
	char buf[PATH_MAX];

	return next()->lstat64(shown(path, buf), st);
}

int __xstat(int version, const char *path, struct stat *st)
{
	char buf[PATH_MAX];

	(void)version;
	return next()->stat(shown(path, buf), st);
}

int __xstat64(int version, const char *path, struct stat64 *st)
{
	char buf[PATH_MAX];

	(void)version;
	return next()->stat64(shown(path, buf), st);
}

int __lxstat(int version, const char *path, struct stat *st)
{
	char buf[PATH_MAX];

	(void)version;
	return next()->lstat(shown(path, buf), st);
}

int __lxstat64(int version, const char *path, struct stat64 *st)
{
	char buf[PATH_MAX];

	(void)version;
	return next()->lstat64(shown(path, buf), st);
}

int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	char buf[PATH_MAX];

	return next()->fstatat(dir, shown(path, buf), st, flags);
}

int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
	char buf[PATH_MAX];

	return next()->fstatat64(dir, shown(path, buf), st, flags);
}

int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *st)
{
	char buf[PATH_MAX];

	return next()->statx(dir, shown(path, buf), flags, mask, st);
}

int access(const char *path, int mode)
{
	char buf[PATH_MAX];

	return next()->access(shown(path, buf), mode);
}

int faccessat(int dir, const char *path, int mode, int flags)
{
	char buf[PATH_MAX];

	return next()->faccessat(dir, shown(path, buf), mode, flags);
}

ssize_t readlink(const char *path, char *out, size_t len)
{
	char buf[PATH_MAX];

	return next()->readlink(shown(path, buf), out, len);
}

ssize_t __readlink_chk(const char *path, char *out, size_t len, size_t room)
{
	char buf[PATH_MAX];

	return next()->__readlink_chk(shown(path, buf), out, len, room);
}

ssize_t readlinkat(int dir, const char *path, char *out, size_t len)
{
	char buf[PATH_MAX];

	return next()->readlinkat(dir, shown(path, buf), out, len);
}

char *realpath(const char *path, char *out)
{
	char buf[PATH_MAX];

	return next()->realpath(shown(path, buf), out);
}

char *__realpath_chk(const char *path, char *out, size_t room)
{
	char buf[PATH_MAX];

	return next()->__realpath_chk(shown(path, buf), out, room);
}

char *canonicalize_file_name(const char *path)
{
	char buf[PATH_MAX];

	return next()->canonicalize_file_name(shown(path, buf));
}

/* ---- opening ---- */

/* The third argument is there only for a file that may be made. */
static mode_t mode_of(int flags, va_list args)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	char buf[PATH_MAX];
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return next()->open(shown(path, buf), flags, mode);
}

int open64(const char *path, int flags, ...)
{
	char buf[PATH_MAX];
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return next()->open64(shown(path, buf), flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	char buf[PATH_MAX];
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return next()->openat(dir, shown(path, buf), flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	char buf[PATH_MAX];
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return next()->openat64(dir, shown(path, buf), flags, mode);
}

int __open_2(const char *path, int flags)
{
	char buf[PATH_MAX];

	return next()->__open_2(shown(path, buf), flags);
}

int __open64_2(const char *path, int flags)
{
	char buf[PATH_MAX];

	return next()->__open64_2(shown(path, buf), flags);
}

int __openat_2(int dir, const char *path, int flags)
{
	char buf[PATH_MAX];

	return next()->__openat_2(dir, shown(path, buf), flags);
}

int __openat64_2(int dir, const char *path, int flags)
{
	char buf[PATH_MAX];

	return next()->__openat64_2(dir, shown(path, buf), flags);
}

FILE *fopen(const char *path, const char *mode)
{
	char buf[PATH_MAX];

	return next()->fopen(shown(path, buf), mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	char buf[PATH_MAX];

	return next()->fopen64(shown(path, buf), mode);
}

DIR *opendir(const char *path)
{
	char buf[PATH_MAX];

	return next()->opendir(shown(path, buf));
}

int scandir(const char *path, struct dirent ***list, int (*take)(const struct dirent *),
	    int (*compare)(const struct dirent **, const struct dirent **))
{
	char buf[PATH_MAX];

	return next()->scandir(shown(path, buf), list, take, compare);
}

int scandir64(const char *path, struct dirent64 ***list, int (*take)(const struct dirent64 *),
	      int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	char buf[PATH_MAX];

	return next()->scandir64(shown(path, buf), list, take, compare);
}
