/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The folder of the host's registry, in a network namespace of the program's own: there, what lies in it
 * is the program's. */
#ifndef T_REGISTRY_H
#define T_REGISTRY_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool t_own_registry;

static inline void t_write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

/* Whatever the folder's name ends with: that is the version of what lies in it. take: all of it is
 * removed; an older namespace may have had this one's number. RETURN how much lies there, name: one of it. */
static inline uint32_t t_registry_entries(bool take, char *name, size_t len)
{
	glob_t found = { 0 };
	char path[400];
	struct stat net;
	uint32_t n = 0;

	if (!t_own_registry || stat("/proc/self/ns/net", &net))
		return 0;
	snprintf(path, sizeof(path), "/dev/shm/softmlx5-%u-%lu.*", geteuid(), (unsigned long)net.st_ino);
	if (!glob(path, 0, NULL, &found)) {
		for (size_t i = 0; i < found.gl_pathc; i++) {
			DIR *dir = opendir(found.gl_pathv[i]);
			struct dirent *e;

			while (dir && (e = readdir(dir))) {
				if (e->d_name[0] == '.')
					continue;
				if (n++ == 0 && name)
					snprintf(name, len, "%s", e->d_name);
				snprintf(path, sizeof(path), "%s/%s", found.gl_pathv[i], e->d_name);
				if (take)
					unlink(path);
			}
			if (dir)
				closedir(dir);
			if (take)
				rmdir(found.gl_pathv[i]);
		}
	}
	globfree(&found);
	return n;
}

/* Before any thread is started and any device is opened. */
static inline void t_own_network(void)
{
	unsigned int uid = getuid(), gid = getgid();
	char text[64];

	t_own_registry = true;
	if (unshare(CLONE_NEWNET)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
			printf("# no namespace of its own (%s): what is left in /dev/shm is not looked at\n",
			       strerror(errno));
			t_own_registry = false;
			return;
		}
		t_write_to("/proc/self/setgroups", "deny");
		snprintf(text, sizeof(text), "%u %u 1", uid, uid);
		t_write_to("/proc/self/uid_map", text);
		snprintf(text, sizeof(text), "%u %u 1", gid, gid);
		t_write_to("/proc/self/gid_map", text);
	}
	t_registry_entries(true, NULL, 0);
}

#endif
