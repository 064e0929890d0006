/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The device's face: all that a driver may call. One smx_dev serves every context of a process.
 *
 * The device is a pure machine: it has no thread, lock or clock of its own. Callers serialise every
 * call on one smx_dev, but for visits (smx_dev_visit_sq()) among themselves. All smx_cmd_* return 0 or an errno, after
 * a refusal that says why; objects that others still use are not destroyed (EBUSY). Work moves only inside
 * smx_dev_turn(), or what stands for one. */
#ifndef SMX_DEV_H
#define SMX_DEV_H

#include "obj/attr.h"

int smx_dev_create(const struct smx_dev_attr *attr, struct smx_dev **out);
void smx_dev_destroy(struct smx_dev *dev);	/* frees whatever still exists */

/* Puts another medium in place of loopback; the device owns it from then on. */
struct smx_port;
void smx_dev_set_port(struct smx_dev *dev, struct smx_port *port);

/* Other processes of this user and network namespace. by_value: their memory is not read directly. */
int smx_dev_open_host(struct smx_dev *dev, bool by_value);
/* A word that changes when one of the next three does; it stays where it is. */
const uint32_t *smx_dev_host_changes(const struct smx_dev *dev);
uint32_t *smx_dev_bell(const struct smx_dev *dev);	/* shared futex word; NULL: no other process can be there */
bool smx_dev_is_reachable(const struct smx_dev *dev);	/* they may send: somebody has to listen */
bool smx_dev_is_linked(const struct smx_dev *dev);	/* they have made contact: a turn may find something */
/* Frames that came from them, ever. */
struct smx_dev_arrivals { uint64_t requests, answers; };
struct smx_dev_arrivals smx_dev_arrivals(const struct smx_dev *dev);
/* The device is not turned from now on; the bell is to change when what is named comes. RETURN false: it has. */
bool smx_dev_doze(struct smx_dev *dev, bool requests, bool answers);
void smx_dev_forked(struct smx_dev *dev);		/* in the child */
/* The process ends: others see that it is gone. What is left of it goes on alone. */
void smx_dev_leave_host(struct smx_dev *dev);

/* The port's GIDs, by index (all zero removes one): where requests with an address vector come from. Once one is set,
 * an address vector with an index that has none is refused (WQE_AH). */
void smx_dev_set_gid(struct smx_dev *dev, uint8_t index, const uint8_t gid[16]);

/* Doorbells. They note that a queue has work; smx_dev_turn() does it. */
void smx_dev_ring_sq(struct smx_dev *dev, struct smx_qp *qp);	/* reads dbrec[SMX_DBREC_SND] */
/* Receives are read when needed; this ends an RNR wait early. */
void smx_dev_ring_rq(struct smx_dev *dev, struct smx_qp *qp);
void smx_dev_ring_srq(struct smx_dev *dev, struct smx_srq *srq);
void smx_dev_arm_cq(struct smx_dev *dev, struct smx_cq *cq, uint32_t arm_word);	/* as in CQ dbrec[1] */

/* Instead of smx_dev_ring_sq() and a turn: does what the doorbell asks for, if nothing else is left to do for a turn,
 * but for what is due. RETURN false when some of it, or all, is left for those two. */
bool smx_dev_serve_sq(struct smx_dev *dev, struct smx_qp *qp);
/* The same for what changes nothing that queue pairs have in common. Unlike any other call, it need not be serialised
 * with others of its kind. */
bool smx_dev_visit_sq(const struct smx_dev *dev, struct smx_qp *qp);
/* From anywhere. RETURN false when that would be in vain. */
bool smx_dev_may_visit_sq(const struct smx_qp *qp);

/* Has a receive that was posted, to qp where it is not NULL, to be rung for? */
bool smx_dev_awaits_receive(const struct smx_dev *dev, const struct smx_qp *qp);

/* Does what is due: fetches and executes WQEs, moves frames, fires timers. Bounded by the budget.
 * RETURN when to call again, in now() nanoseconds: 0 for at once, UINT64_MAX for when rung. */
uint64_t smx_dev_turn(struct smx_dev *dev);
/* Has a doorbell, or a receive that somebody waited for, left work for a turn? */
bool smx_dev_is_ready(const struct smx_dev *dev);
/* Turns come all the time from now on, or no longer: until then, what the next one can do as well may wait for it. */
void smx_dev_polled(struct smx_dev *dev, bool polled);
/* The next turn is not the program's: its threads may see a completion in the middle of it, and the acknowledgement is
 * to have left before. */
void smx_dev_prompt(struct smx_dev *dev, bool prompt);
/* Would a turn find anything, besides what is due? Costs little. */
bool smx_dev_has_news(const struct smx_dev *dev);

/* Looks at doorbell records itself, for programs that write them without telling (D5): of queue pairs for
 * sends, of completion queues for arm words other than the one that stood there. (Receives are read when needed; those
 * of a watched queue pair in ERR are flushed by turns, which then ask for the next one.)
 * RETURN whether any queue had new work; smx_dev_turn() then does it. */
void smx_dev_watch_qp(struct smx_dev *dev, struct smx_qp *qp, bool on);
void smx_dev_watch_cq(struct smx_dev *dev, struct smx_cq *cq, bool on);
bool smx_dev_poll_watched(struct smx_dev *dev);

/* Protection domains and XRC domains */
int smx_cmd_alloc_pd(struct smx_dev *dev, struct smx_pd **pd, uint32_t *pdn);
int smx_cmd_dealloc_pd(struct smx_dev *dev, struct smx_pd *pd);
int smx_cmd_alloc_xrcd(struct smx_dev *dev, struct smx_xrcd **xrcd);
int smx_cmd_dealloc_xrcd(struct smx_dev *dev, struct smx_xrcd *xrcd);

/* Memory keys: regions, windows, indirect keys. *key is lkey and rkey. */
int smx_cmd_create_mkey(struct smx_dev *dev, const struct smx_mkey_attr *attr, struct smx_mkey **mkey, uint32_t *key);
/* which: enum ibv_rereg_mr_flags; fields of attr that it does not name are ignored. The key stays. */
/* Its memory is shared from now on (struct smx_mkey_attr). */
void smx_cmd_share_mkey(struct smx_dev *dev, struct smx_mkey *mkey);
int smx_cmd_modify_mkey(struct smx_dev *dev, struct smx_mkey *mkey, int which, const struct smx_mkey_attr *attr);
int smx_cmd_destroy_mkey(struct smx_dev *dev, struct smx_mkey *mkey);
/* Type 1 windows: the driver sees the new key before the bind executes, so the tag is the driver's. */
uint32_t smx_mkey_key(const struct smx_mkey *mkey);

/* Completion queues */
int smx_cmd_create_cq(struct smx_dev *dev, const struct smx_cq_attr *attr, struct smx_cq **cq, uint32_t *cqn);
/* Moves to a new buffer: what was not consumed is copied, oldest first, with ownership of the new ring. */
int smx_cmd_resize_cq(struct smx_dev *dev, struct smx_cq *cq, void *buf, uint32_t cqe_count);
int smx_cmd_destroy_cq(struct smx_dev *dev, struct smx_cq *cq);

/* Shared receive queues */
int smx_cmd_create_srq(struct smx_dev *dev, const struct smx_srq_attr *attr, struct smx_srq **srq, uint32_t *srqn);
int smx_cmd_arm_srq(struct smx_dev *dev, struct smx_srq *srq, uint32_t limit);
int smx_cmd_query_srq(struct smx_dev *dev, struct smx_srq *srq, uint32_t *limit);
uint32_t smx_srq_users(const struct smx_srq *srq);	/* queue pairs that receive from it */
int smx_cmd_destroy_srq(struct smx_dev *dev, struct smx_srq *srq);

/* Queue pairs. DCTs get their number here too; they answer from RTR on. */
int smx_cmd_create_qp(struct smx_dev *dev, const struct smx_qp_attr *attr, struct smx_qp **qp, uint32_t *qpn);
/* mask: enum ibv_qp_attr_mask. path is attr->ah_attr resolved, needed with IBV_QP_AV. Attributes are checked against
 * state, type and device; see obj/qp_state.c. To ERR: outstanding work completes as flushed before this returns. */
int smx_cmd_modify_qp(struct smx_dev *dev, struct smx_qp *qp, const struct ibv_qp_attr *attr,
		      int mask, const struct smx_path *path);
int smx_cmd_query_qp(struct smx_dev *dev, struct smx_qp *qp, struct ibv_qp_attr *attr);
int smx_cmd_destroy_qp(struct smx_dev *dev, struct smx_qp *qp);
int smx_cmd_set_udp_sport(struct smx_dev *dev, struct smx_qp *qp, uint16_t udp_sport);
int smx_cmd_reset_stream(struct smx_dev *dev, struct smx_qp *dci, uint16_t stream_id);
int smx_cmd_reserve_qpn(struct smx_dev *dev, uint32_t *qpn);
int smx_cmd_unreserve_qpn(struct smx_dev *dev, uint32_t qpn);
int smx_cmd_attach_mcast(struct smx_dev *dev, struct smx_qp *qp, const uint8_t gid[16]);
int smx_cmd_detach_mcast(struct smx_dev *dev, struct smx_qp *qp, const uint8_t gid[16]);

/* How many send requests were ever flushed behind one that failed; they are counted, not refused one by one. */
uint64_t smx_qp_flushed(const struct smx_qp *qp);

enum ibv_qp_state smx_qp_state(const struct smx_qp *qp);

/* Fork: everything the device holds is this process's copy; nothing needs redoing in the device itself. */

#endif
