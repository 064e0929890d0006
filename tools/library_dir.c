/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding the libraries that belong to this executable: in its build tree, or as installed. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "cmd.h"

/* rdma-core's own libibverbs.so.1 may well be beside us; ours has a function that no other has. */
static bool is_ours(const char *path)
{
	static const char mark[] = "softmlx5_last_refusal";
	struct stat st;
	bool found = false;
	void *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p != MAP_FAILED) {
			found = memmem(p, (size_t)st.st_size, mark, sizeof(mark) - 1) != NULL;
			munmap(p, (size_t)st.st_size);
		}
	}
	close(fd);
	return found;
}

/* RETURN whether the pattern matches a file that is ours; its folder goes to buf. */
static bool try_pattern(const char *bin, const char *pattern, char *buf, size_t len)
{
	char full[PATH_MAX + 128];
	bool found = false;
	glob_t g;

	snprintf(full, sizeof(full), "%s/%s/libibverbs.so.1", bin, pattern);
	if (glob(full, 0, NULL, &g))
		return false;
	for (size_t i = 0; i < g.gl_pathc && !found; i++) {
		char *path = realpath(g.gl_pathv[i], NULL);

		if (path && is_ours(path))
			found = (size_t)snprintf(buf, len, "%s", dirname(path)) < len;
		free(path);
	}
	globfree(&g);
	return found;
}

int cmd_library_dir(char *buf, size_t len)
{
	static const char *const patterns[] = { "../" SMX_INSTALL_LIBDIR "/softmlx5", "../lib/softmlx5",
						"../lib/*/softmlx5", "../lib64/softmlx5", "../lib" };
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	const char *bin;

	if (n < 0) {
		fprintf(stderr, "softmlx5: /proc/self/exe: %s\n", strerror(errno));
		return -1;
	}
	exe[n] = '\0';
	bin = dirname(exe);
	for (size_t i = 0; i < SMX_COUNT(patterns); i++)
		if (try_pattern(bin, patterns[i], buf, len))
			return 0;
	fprintf(stderr, "softmlx5: no libibverbs.so.1 of softmlx5 in %s/../lib, nor in a folder `softmlx5' below it; "
		"build it, or run the installed command\n", bin);
	return -1;
}
