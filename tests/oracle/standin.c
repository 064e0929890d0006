/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A kernel side for rdma-core's own libibverbs and libmlx5 on a machine without a device. Preloaded into a
 * program by with_libmlx5.sh, which also names a directory in place of /sys (SYSFS_PATH).
 *
 * The command channel is /dev/null under another name: what libibverbs writes to it as ioctls is answered
 * here (standin_cmd.c), what it maps of it is ordinary memory. Nothing is executed: queues are written, and
 * stay. The kernel's own headers are the only ones used. */
#include "standin.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>

enum { NULL_MAJOR = 1, NULL_MINOR = 3 };	/* of /dev/null; dev in the directory says so too */

static const char cdev[] = "/dev/infiniband/uverbs0";

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return (int)syscall(SYS_openat, AT_FDCWD, strcmp(path, cdev) ? path : "/dev/null", flags, mode);
}

int stat(const char *path, struct stat *st)
{
	return fstatat(AT_FDCWD, strcmp(path, cdev) ? path : "/dev/null", st, 0);
}

/* libibverbs asks here for devices first, and reads the directory when there is no answer. */
int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_socket, domain, type, protocol);
}

/* Registers of the device: memory, which keeps what was stored last. */
void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(NULL_MAJOR, NULL_MINOR)) {
		prot = PROT_READ | PROT_WRITE;
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
		fd = -1;
		offset = 0;
	}
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == RDMA_VERBS_IOCTL) {
		errno = standin_command(arg);
		return errno ? -1 : 0;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}
