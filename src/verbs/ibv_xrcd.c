/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XRC domains. Those opened by one file are one domain. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "verbs/objects.h"

/* A domain and the file it was opened by; a private one has no file and is on no list. */
struct smx_xrcd_file {
	dev_t dev;
	ino_t ino;
	bool listed;
	struct smx_xrcd *xrcd;
	uint32_t opens;
	struct smx_xrcd_file *next;
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct smx_xrcd_file *files;

static struct smx_xrcd_file *find(const struct stat *st)
{
	struct smx_xrcd_file *f = files;

	while (f && (f->dev != st->st_dev || f->ino != st->st_ino))
		f = f->next;
	return f;
}

static int create(struct smx_xrcd_file **out, const struct stat *st)
{
	struct smx_xrcd_file *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return ENOMEM;
	smx_engine_lock();
	err = smx_cmd_alloc_xrcd(smx_engine_dev(), &f->xrcd);
	smx_engine_unlock();
	if (err) {
		free(f);
		return err;
	}
	if (st) {
		f->dev = st->st_dev;
		f->ino = st->st_ino;
		f->listed = true;
		f->next = files;
		files = f;
	}
	*out = f;
	return 0;
}

/* The kernel's rules for oflags: O_CREAT allows a new domain, O_EXCL forbids an old one. */
static int open_file(struct smx_xrcd_file **out, const struct ibv_xrcd_init_attr *attr)
{
	struct stat st;

	*out = NULL;
	if (attr->fd == -1)
		return create(out, NULL);
	if (fstat(attr->fd, &st))
		return smx_refuse(smx_refusals(), SMX_CHECK_XRCD_FILE, NULL, "descriptor %d",
				  attr->fd);
	*out = find(&st);
	if (*out && (attr->oflags & O_CREAT) && (attr->oflags & O_EXCL))
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "XRC domain of descriptor %d is open, oflags has O_EXCL",
				  attr->fd);
	if (*out)
		return 0;
	if (!(attr->oflags & O_CREAT)) {
		smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
			   "XRC domain of descriptor %d does not exist in this process, oflags lacks O_CREAT",
			   attr->fd);
		return EAGAIN;
	}
	return create(out, &st);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct smx_vxrcd *vxrcd = calloc(1, sizeof(*vxrcd));
	int err;

	if (!vxrcd) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&files_lock);
	if (attr->comp_mask != needed)
		err = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				 "XRC domain with comp_mask 0x%x; descriptor and oflags are needed",
				 attr->comp_mask);
	else
		err = open_file(&vxrcd->file, attr);
	if (!err) {
		vxrcd->file->opens++;
		vxrcd->dev = vxrcd->file->xrcd;
	}
	pthread_mutex_unlock(&files_lock);
	if (err) {
		free(vxrcd);
		errno = err;
		return NULL;
	}
	vxrcd->ibv.context = context;
	vxrcd->fd = attr->fd;
	smx_ctx_hold(context);
	return &vxrcd->ibv;
}

static void unlist(struct smx_xrcd_file *f)
{
	struct smx_xrcd_file **link = &files;

	if (!f->listed)
		return;
	while (*link != f)
		link = &(*link)->next;
	*link = f->next;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct smx_vxrcd *vxrcd = (struct smx_vxrcd *)(void *)xrcd;
	struct ibv_context *context = xrcd->context;
	struct smx_xrcd_file *f = vxrcd->file;
	int err = 0;

	pthread_mutex_lock(&files_lock);
	if (f->opens == 1) {
		smx_engine_lock();
		err = smx_cmd_dealloc_xrcd(smx_engine_dev(), f->xrcd);
		smx_engine_unlock();
	}
	if (!err && !--f->opens) {
		unlist(f);
		free(f);
	}
	pthread_mutex_unlock(&files_lock);
	if (err)
		return err;
	free(vxrcd);
	smx_ctx_drop(context);
	return 0;
}

void smx_ops_xrcd(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
}
