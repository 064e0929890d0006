/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: memory is found through another's tables only where they allow the whole request, and no word in them, nor a
 * file that is none, does the reader harm.
 * Method: both ends in one process, over one shared page; each entry spoilt in one place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/share.h"
#include "net/host_tables.h"

enum { SLOT = 3, GEN = 7, QPN = 0x1234, PEER = 0x777, DCT = 0x2000, PDN = 9, MEM = 8192, START = 0x100000 };

static const uint32_t KEY = 0x12345678;
static char why[256];
static struct smx_tables tables;
static struct smx_far far_end;
static uint8_t *mem;

static unsigned int threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) ? 0 : (unsigned int)st.st_nlink - 3;
}

static struct smx_port_key a_key(void)
{
	return (struct smx_port_key){
		.key = KEY, .pdn = PDN, .rights = SMX_MAY_WRITE | SMX_MAY_READ | SMX_MAY_ATOMIC,
		.start = START, .length = MEM, .host = (uintptr_t)mem,
	};
}

static struct smx_port_qp a_qp(void)
{
	return (struct smx_port_qp){
		.qpn = QPN, .pdn = PDN, .rights = SMX_MAY_WRITE | SMX_MAY_READ | SMX_MAY_ATOMIC, .peer = PEER,
		.mtu_bytes = 1024, .transport = SMX_TP_RC,
	};
}

static struct smx_port_request a_write(uint64_t va, uint64_t length)
{
	return (struct smx_port_request){
		.transport = SMX_TP_RC, .right = SMX_MAY_WRITE, .src_qpn = PEER, .dst_qpn = QPN, .rkey = KEY, .va = va,
		.length = length, .mtu_bytes = 1024,
	};
}

static int set_up(void **state)
{
	struct smx_port_key key;
	struct smx_port_qp qp = a_qp();

	(void)state;
	mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED || !smx_share(mem, MEM, threads()) || !smx_tables_make(&tables))
		return -1;
	tables.file->slot = SLOT;
	tables.file->gen = GEN;
	tables.file->share_fd = smx_share_fd();
	key = a_key();
	smx_tables_put_key(&tables, &key);
	smx_tables_put_qp(&tables, &qp);
	return smx_far_open(&far_end, getpid(), tables.fd, SLOT, GEN, why, sizeof(why)) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	smx_far_close(&far_end);
	smx_tables_close(&tables);
	smx_unshare(mem, MEM, threads());
	munmap(mem, MEM);
	return 0;
}

static void *at(const struct smx_port_request *f, uint64_t off)
{
	uint64_t length;

	return smx_far_at(&far_end, f, off, &length);
}

static void *find(uint64_t va, uint64_t length)
{
	struct smx_port_request f = a_write(va, length);

	return at(&f, 0);
}

/* Pages that were stored into again would be nobody's. */
static void memory_that_is_not_shared_any_more_is_let_go(void **state)
{
	struct smx_port_request f = a_write(START, 100);
	uint64_t length = 8;

	(void)state;
	assert_non_null(smx_far_memory(&far_end, (uintptr_t)mem, &length));
	assert_non_null(far_end.memory);
	tables.file->sharing = 0;
	assert_null(smx_far_memory(&far_end, (uintptr_t)mem, &length));
	assert_null(far_end.memory);
	assert_null(at(&f, 0));
	assert_null(far_end.memory);
}

/* What is stored there is in the owner's memory. */
static void found(void **state)
{
	struct smx_port_request f = a_write(START + 100, 4000);
	uint64_t length = 0;
	uint8_t *p;

	(void)state;
	p = smx_far_at(&far_end, &f, 8, &length);
	assert_non_null(p);
	assert_int_equal(length, 3992);
	memcpy(p, "direct", 6);
	assert_memory_equal(mem + 108, "direct", 6);
	assert_true(smx_far_held(&far_end));
	assert_non_null(find(START, MEM));
	assert_non_null(find(START + MEM - 1, 1));
}

static void ranges(void **state)
{
	static const struct { uint64_t va, length; } out[] = {
		{ START, MEM + 1 }, { START + 1, MEM }, { START - 1, 1 }, { START - 1, MEM }, { START + MEM, 1 },
		{ START, 0 }, { 0, 8 }, { UINT64_MAX, 8 }, { START, UINT64_MAX }, { START + 8, UINT64_MAX - 4 },
	};
	struct smx_port_request f = a_write(START, 100);

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(out); i++)
		assert_null(find(out[i].va, out[i].length));
	assert_null(at(&f, 100));
	assert_null(at(&f, UINT64_MAX));
}

static void other_requests(void **state)
{
	struct smx_port_request f;

	(void)state;
	f = a_write(START, 8), f.rkey ^= 1, assert_null(at(&f, 0));
	f = a_write(START, 8), f.rkey ^= 0x100, assert_null(at(&f, 0));
	f = a_write(START, 8), f.rkey = 0, assert_null(at(&f, 0));
	f = a_write(START, 8), f.rkey = UINT32_MAX, assert_null(at(&f, 0));
	f = a_write(START, 8), f.dst_qpn++, assert_null(at(&f, 0));
	f = a_write(START, 8), f.dst_qpn = 0, assert_null(at(&f, 0));
	f = a_write(START, 8), f.dst_qpn = 0xffffff, assert_null(at(&f, 0));
	f = a_write(START, 8), f.src_qpn++, assert_null(at(&f, 0));
	f = a_write(START, 8), f.mtu_bytes = 512, assert_null(at(&f, 0));
	f = a_write(START, 8), f.transport = SMX_TP_DC, assert_null(at(&f, 0));
	f = a_write(START, 8), f.transport = SMX_TP_UC, assert_null(at(&f, 0));
	f = a_write(START, 8), f.right = 1u << 31, assert_null(at(&f, 0));
	f = a_write(START + 8, 8), f.right = SMX_MAY_ATOMIC, assert_non_null(at(&f, 0));
	f = a_write(START + 4, 8), f.right = SMX_MAY_ATOMIC, assert_null(at(&f, 0));
}

static void put_key(const struct smx_port_key *key)
{
	smx_tables_withdraw_key(&tables, KEY);
	smx_tables_put_key(&tables, key);
}

static void rights(void **state)
{
	static const uint32_t right[] = { SMX_MAY_WRITE, SMX_MAY_READ, SMX_MAY_ATOMIC };
	struct smx_port_key key = a_key(), full = key;
	struct smx_port_qp qp = a_qp(), able = qp;

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(right); i++) {
		struct smx_port_request f = a_write(START, 8);

		f.right = right[i];
		key.rights = full.rights & ~right[i];
		put_key(&key);
		assert_null(at(&f, 0));
		key.rights = right[i];
		put_key(&key);
		assert_non_null(at(&f, 0));
		qp.rights = able.rights & ~right[i];
		assert_true(smx_tables_withdraw_qp(&tables, QPN));
		smx_tables_put_qp(&tables, &qp);
		assert_null(at(&f, 0));
		assert_true(smx_tables_withdraw_qp(&tables, QPN));
		smx_tables_put_qp(&tables, &able);
		assert_true(smx_tables_has_qp(&tables, &able));
		assert_false(smx_tables_has_qp(&tables, &qp));
	}
	full.pdn++;
	put_key(&full);
	assert_null(find(START, 8));
}

static void dc(void **state)
{
	struct smx_port_qp dct = { .qpn = DCT, .pdn = PDN, .rights = SMX_MAY_WRITE, .dc_key = 0x55, .mtu_bytes = 1024,
				   .transport = SMX_TP_DC };
	struct smx_port_request f = a_write(START, 8);

	(void)state;
	smx_tables_put_qp(&tables, &dct);
	f.dst_qpn = DCT;
	assert_null(at(&f, 0));
	f.transport = SMX_TP_DC;
	assert_null(at(&f, 0));
	f.dc_key = 0x55;
	assert_non_null(at(&f, 0));
	f.src_qpn = 1;
	assert_non_null(at(&f, 0));
	f.right = SMX_MAY_READ;
	assert_null(at(&f, 0));
}

static void withdrawn(void **state)
{
	struct smx_port_qp qp = a_qp();

	(void)state;
	assert_true(smx_tables_withdraw_key(&tables, KEY));
	assert_false(smx_tables_withdraw_key(&tables, KEY));
	assert_null(find(START, 8));
	smx_tables_put_key(&tables, &(struct smx_port_key){ .key = KEY + 1, .pdn = PDN, .rights = 7, .start = START,
							     .length = MEM, .host = (uintptr_t)mem });
	assert_null(find(START, 8));
	put_key(&(struct smx_port_key){ .key = KEY, .pdn = PDN, .rights = 7, .start = START, .length = MEM,
					.host = (uintptr_t)mem });
	assert_non_null(find(START, 8));
	assert_true(smx_tables_withdraw_qp(&tables, QPN));
	assert_null(find(START, 8));
	smx_tables_put_qp(&tables, &qp);
	__atomic_store_n(&tables.file->sharing, 0, __ATOMIC_SEQ_CST);
	assert_null(find(START, 8));
	assert_false(smx_far_held(&far_end));
}

/* Whatever an owner writes, the reader's own memory is not touched by looking. */
static void hostile(void **state)
{
	static const struct { uint64_t start, length, host; } row[] = {
		{ START, UINT64_MAX, 0x1000 }, { 0, UINT64_MAX, UINT64_MAX - 5 }, { START, MEM, UINT64_MAX - 4096 },
		{ START, MEM, SMX_SHARE_BYTES }, { START, MEM, SMX_SHARE_BYTES * 2 }, { START, UINT64_MAX, 0 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(row); i++) {
		struct smx_port_key key = { .key = KEY, .pdn = PDN, .rights = 7, .start = row[i].start,
					    .length = row[i].length, .host = row[i].host };
		uint64_t length = 0;
		struct smx_port_request f = a_write(START, 64);
		uint8_t *p;

		put_key(&key);
		p = smx_far_at(&far_end, &f, 0, &length);
		/* An address below the file's end is in the file, page or no page. */
		if (p)
			assert_true(length <= 64 && row[i].host < SMX_SHARE_BYTES);
	}
}

static void other_files(void **state)
{
	const int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct smx_far far;

	(void)state;
	assert_false(smx_far_open(&far, getpid(), tables.fd, SLOT + 1, GEN, why, sizeof(why)));
	assert_non_null(strstr(why, "slot 4"));
	assert_false(smx_far_open(&far, getpid(), tables.fd, SLOT, GEN + 1, why, sizeof(why)));
	assert_false(smx_far_open(&far, getpid(), 0x3fffffff, SLOT, GEN, why, sizeof(why)));
	assert_non_null(strstr(why, "cannot be opened"));
	assert_false(smx_far_open(&far, getpid(), plain, SLOT, GEN, why, sizeof(why)));
	assert_int_equal(ftruncate(plain, sizeof(struct smx_tables_file)), 0);
	assert_false(smx_far_open(&far, getpid(), plain, SLOT, GEN, why, sizeof(why)));
	assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_false(smx_far_open(&far, getpid(), plain, SLOT, GEN, why, sizeof(why)));
	assert_non_null(strstr(why, "magic"));
	close(plain);
}

/* A memfd number that is no memfd of base/share.h: nothing is found, and it is asked once. */
static void no_memory(void **state)
{
	struct smx_port_request f = a_write(START, 8);
	struct smx_far far;
	uint64_t length;

	(void)state;
	tables.file->share_fd = tables.fd;
	assert_true(smx_far_open(&far, getpid(), tables.fd, SLOT, GEN, why, sizeof(why)));
	assert_null(smx_far_at(&far, &f, 0, &length));
	tables.file->share_fd = smx_share_fd();
	assert_null(smx_far_at(&far, &f, 0, &length));
	smx_far_close(&far);
}

static void lives(void **state)
{
	(void)state;
	assert_true(smx_far_lives(&far_end, 1));
	close(tables.fd);
	usleep(20000);
	assert_true(smx_far_lives(&far_end, 1));	/* once a turn is enough */
	assert_false(smx_far_lives(&far_end, 2));
	tables.fd = open("/dev/null", O_RDONLY);	/* its number may be another's by now */
	assert_false(smx_far_lives(&far_end, 2));
}

#define A_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		A_TEST(found), A_TEST(ranges), A_TEST(other_requests), A_TEST(rights), A_TEST(dc), A_TEST(withdrawn),
		A_TEST(hostile), A_TEST(other_files), A_TEST(no_memory), A_TEST(lives),
		A_TEST(memory_that_is_not_shared_any_more_is_let_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
