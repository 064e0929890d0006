/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: names of old and private versions do what they are there for: they let a program or a driver load, and
 * refuse politely when called.
 * Method: dlvsym() of each kind, called with the types that rdma-core gives it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

static int failed;

static void result(int good, const char *name)
{
	printf("%s - %s\n", good ? "ok" : "not ok", name);
	failed += !good;
}

static void *find(void *lib, const char *name, const char *version)
{
	void *p = dlvsym(lib, name, version);

	if (!p)
		printf("# %s\n", dlerror());
	return p;
}

static void old_names(void *lib)
{
	struct ibv_device **(*get_list)(int *) = find(lib, "ibv_get_device_list", "IBVERBS_1.0");
	int (*query)(void *, void *) = find(lib, "ibv_query_device", "IBVERBS_1.0");
	char buf[512];

	errno = 0;
	result(get_list && !get_list(NULL) && errno == EOPNOTSUPP, "IBVERBS_1.0 pointer is NULL with EOPNOTSUPP");
	result(query && query(buf, buf) == EOPNOTSUPP, "IBVERBS_1.0 integer is EOPNOTSUPP");
	result(dlsym(lib, "ibv_get_device_list") == find(lib, "ibv_get_device_list", "IBVERBS_1.1"),
	       "without a version the newest is meant");
}

static void private_names(void *lib, const char *node, const char *reg)
{
	int (*gid_type)(struct ibv_context *, uint8_t, unsigned int, uint32_t *) =
		find(lib, "ibv_query_gid_type", node);
	void (*register_driver)(const void *) = find(lib, reg, node);
	int (*create)(void *, void *) = find(lib, "ibv_cmd_create_cq_ex", node);
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	uint32_t v2 = 9, empty = 9;
	char name[96];

	snprintf(name, sizeof(name), "%s: GID 0 is RoCE v2, an empty one reads as v1, no index 256", node);
	result(ctx && gid_type && !gid_type(ctx, 1, 0, &v2) && v2 == 1 && !gid_type(ctx, 1, 255, &empty) &&
	       empty == 0 && gid_type(ctx, 1, 256, &empty) == -1, name);
	if (register_driver)
		register_driver(name);
	snprintf(name, sizeof(name), "%s: a driver registers, and its calls are refused", node);
	result(register_driver && create && create(name, name) == EOPNOTSUPP, name);
	if (ctx)
		ibv_close_device(ctx);
	ibv_free_device_list(list);
}

int main(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);

	if (!lib) {
		printf("not ok - libibverbs.so.1 loads: %s\n", dlerror());
		return 1;
	}
	old_names(lib);
	private_names(lib, "IBVERBS_PRIVATE_34", "verbs_register_driver_34");
	private_names(lib, "IBVERBS_PRIVATE_57", "verbs_register_driver_57");
	private_names(lib, "IBVERBS_PRIVATE_59", "verbs_register_driver_59");
	private_names(lib, "IBVERBS_PRIVATE_64", "verbs_register_driver_64");
	private_names(lib, "IBVERBS_PRIVATE_65", "verbs_register_driver_65");
	return failed != 0;
}
