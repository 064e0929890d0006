/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The list of devices: one, mlx5_0. */
#include "verbs/ibv_device.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/be.h"

static struct ibv_device device = {
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.name = "mlx5_0",
	.dev_name = "uverbs0",
	.dev_path = "/sys/class/infiniband_verbs/uverbs0",
	.ibdev_path = "/sys/class/infiniband/mlx5_0",
};
static uint64_t guid;

/* Some programs (UCX) tell the kind of device by the PCI files above ibdev_path. Such a directory
 * lies beside this library; without it the name is the one the kernel would have. */
static void find_ibdev_path(void)
{
	static const char below[] = "/ibdev/sys/devices/softmlx5/0000:ca:00.0/infiniband/mlx5_0";
	char path[IBV_SYSFS_PATH_MAX];
	const char *slash;
	struct stat st;
	Dl_info info;
	int len;

	if (!dladdr(&device, &info) || !info.dli_fname)
		return;
	slash = strrchr(info.dli_fname, '/');
	len = slash ? snprintf(path, sizeof(path), "%.*s%s", (int)(slash - info.dli_fname),
			       info.dli_fname, below)
		    : snprintf(path, sizeof(path), ".%s", below);
	if (len < (int)sizeof(path) && !stat(path, &st) && S_ISDIR(st.st_mode))
		memcpy(device.ibdev_path, path, (size_t)len + 1);
}

/* The same on every run on this host, another on another host. */
static void make_guid(void)
{
	char host[256] = "";
	uint64_t hash = 0xcbf29ce484222325;

	gethostname(host, sizeof(host) - 1);
	for (const char *c = host; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
	/* An EUI-64 made of a locally administered MAC. */
	guid = 0x020000fffe000000 | (hash & 0xffffff) | (hash >> 24 & 0xffff) << 40;
}

static void set_up(void)
{
	find_ibdev_path();
	make_guid();
}

struct ibv_device *smx_device(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, set_up);
	return &device;
}

uint64_t smx_device_guid(void)
{
	smx_device();
	return guid;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(struct ibv_device *));

	if (num_devices)
		*num_devices = list ? 1 : 0;
	if (list)
		list[0] = smx_device();
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

int ibv_get_device_index(struct ibv_device *dev)
{
	(void)dev;
	return 0;
}

__be64 ibv_get_device_guid(struct ibv_device *dev)
{
	(void)dev;
	return htobe64(smx_device_guid());
}

const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

/* RETURN how many bytes were read, a newline at the end cut off, or -1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t len;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, buf, size);
	close(fd);
	if (len > 0) {
		if (buf[len - 1] == '\n')
			buf[--len] = '\0';
		else if ((size_t)len < size)
			buf[len] = '\0';
		else
			len = -1;
	}
	return (int)len;
}

/* Fork needs no preparation: the child has its own copy of every queue. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
