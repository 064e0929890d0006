/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5 decode: a dump, or codes, in words. All that it knows is in src/hw. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/text.h"
#include "cmd.h"
#include "hw/hw_dump.h"

enum {
	KEY_AS = 0x100,
	KEY_TYPE,
	KEY_SYNDROME,
	KEY_STATUS,
	KEY_VENDOR,
	KEY_HW,
	KEY_SIDE,
	INPUT_MAX = 1 << 20,
	OUTPUT_MAX = 1 << 20,
};

struct decode {
	struct smx_dump_options opt;
	struct smx_codes codes;
	bool have_codes;
	const char *file;
	char *text;
	size_t len;
	bool have_text;
};

struct word { const char *name; int value; };

static const struct word as_words[] = {
	{ "wqe", SMX_DUMP_SEND_WQE }, { "recv", SMX_DUMP_RECV_WQE }, { "srq", SMX_DUMP_SRQ_WQE },
	{ "cqe", SMX_DUMP_CQE }, { "cqe128", SMX_DUMP_CQE128 }, { NULL, 0 },
};
static const struct word type_words[] = {
	{ "rc", SMX_WQE_RC }, { "uc", SMX_WQE_RC }, { "ud", SMX_WQE_UD }, { "dc", SMX_WQE_DC },
	{ "xrc", SMX_WQE_XRC }, { "eth", SMX_WQE_ETH }, { NULL, 0 },
};
static const struct word side_words[] = {
	{ "send", SMX_SIDE_REQ }, { "recv", SMX_SIDE_RESP }, { NULL, 0 },
};

static const struct argp_option options[] = {
	{ "file", 'f', "FILE", 0, "Read FILE; - is standard input", 1 },
	{ "as", KEY_AS, "KIND", 0, "Do not decide what the bytes are: wqe, recv, srq, cqe or cqe128", 1 },
	{ "type", KEY_TYPE, "TYPE", 0, "The send WQE's queue pair is rc, uc, ud, dc, xrc or eth", 1 },
	{ "syndrome", KEY_SYNDROME, "N", 0, "Explain codes instead of bytes: byte 55 of the CQE", 2 },
	{ "status", KEY_STATUS, "N", 0, "Instead of --syndrome: enum ibv_wc_status, as in a work completion", 2 },
	{ "vendor", KEY_VENDOR, "N", 0, "Byte 54 of the CQE, vendor_err of a work completion", 2 },
	{ "hw", KEY_HW, "N", 0, "Byte 52 of the CQE", 2 },
	{ "side", KEY_SIDE, "SIDE", 0, "What failed: send or recv", 2 },
	{ 0 },
};

static int look_up(struct argp_state *state, const struct word *words, const char *option, const char *arg)
{
	for (; words->name; words++)
		if (!strcmp(words->name, arg))
			return words->value;
	argp_error(state, "%s cannot be `%s'", option, arg);
	return 0;
}

static int code(struct argp_state *state, const char *option, const char *arg)
{
	char *end;
	unsigned long v = strtoul(arg, &end, 0);

	if (end == arg || *end || v > 0xff || *arg == '-')
		argp_error(state, "%s is a number from 0 to 255, not `%s'", option, arg);
	return (int)v;
}

static void append(struct argp_state *state, struct decode *d, const char *text, size_t len)
{
	if (len > INPUT_MAX - d->len)
		argp_failure(state, CMD_FAILED, 0, "more than %d bytes of text", INPUT_MAX);
	memcpy(d->text + d->len, text, len);
	d->len += len;
	d->have_text = true;
}

static void read_file(struct argp_state *state, struct decode *d, const char *name)
{
	FILE *f = strcmp(name, "-") ? fopen(name, "r") : stdin;
	char buf[4096];
	size_t n;

	if (!f)
		argp_failure(state, CMD_FAILED, errno, "%s", name);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		append(state, d, buf, n);
	if (ferror(f))
		argp_failure(state, CMD_FAILED, errno, "%s", name);
	if (f != stdin)
		fclose(f);
	append(state, d, "\n", 1);
}

/* An argument is text; one that is no hex and names a file is that file. */
static void take_argument(struct argp_state *state, struct decode *d, const char *arg)
{
	if (arg[strspn(arg, "0123456789abcdefABCDEFxX")] && access(arg, R_OK) == 0) {
		read_file(state, d, arg);
		return;
	}
	append(state, d, arg, strlen(arg));
	append(state, d, " ", 1);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct decode *d = state->input;

	switch (key) {
	case 'f':
		read_file(state, d, arg);
		return 0;
	case KEY_AS:
		d->opt.as = (enum smx_dump_kind)look_up(state, as_words, "--as", arg);
		return 0;
	case KEY_TYPE:
		d->opt.kind = (enum smx_wqe_kind)look_up(state, type_words, "--type", arg);
		return 0;
	case KEY_SIDE:
		d->codes.side = (uint8_t)look_up(state, side_words, "--side", arg);
		return 0;
	case KEY_SYNDROME:
		d->codes.syndrome = (uint8_t)code(state, "--syndrome", arg);
		d->have_codes = true;
		return 0;
	case KEY_STATUS: {
		const struct smx_status *s = smx_status_by_number((uint32_t)code(state, "--status", arg));

		if (!s)
			argp_error(state, "no syndrome gives status %s", arg);
		else
			d->codes.syndrome = s->syndrome;
		d->have_codes = true;
		return 0;
	}
	case KEY_VENDOR:
		d->codes.vendor = (int16_t)code(state, "--vendor", arg);
		return 0;
	case KEY_HW:
		d->codes.hw = (int16_t)code(state, "--hw", arg);
		return 0;
	case ARGP_KEY_ARG:
		take_argument(state, d, arg);
		return 0;
	case ARGP_KEY_END:
		if (!d->have_codes && (d->codes.vendor >= 0 || d->codes.hw >= 0))
			argp_error(state, "--vendor and --hw need --syndrome or --status");
		if (d->have_codes && d->have_text)
			argp_error(state, "codes or a dump, not both");
		if (!d->have_codes && !d->have_text)
			read_file(state, d, "-");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[HEX... | FILE...]",
	.doc = "Explain a WQE or a CQE: every field by name, what the codes of an error mean, and what is known to "
	       "cause them. Reads hex from the arguments, from files or from standard input, in any shape in "
	       "which the kernel, libmlx5, DPDK, UCX, gdb, xxd or hexdump print it; 16 to 1024 bytes that "
	       "stand together, a WQE, a CQE or both.\v"
	       "Causes carry a grade: M measured on a ConnectX by fault injection, S stated by the vendor or a "
	       "maintainer, O observed in public reports, I inferred from the others.\n"
	       "\n"
	       "Exit status: 0; 1 if nothing was understood; 2 for a wrong command line.",
};

int cmd_decode(int argc, char **argv)
{
	static struct smx_dump dump;
	struct decode d = { .codes = { .vendor = SMX_CODE_UNKNOWN, .hw = SMX_CODE_UNKNOWN, .side = SMX_SIDE_ANY } };
	char *buf = malloc(OUTPUT_MAX);
	struct smx_text out;
	size_t understood = 1;

	d.text = malloc(INPUT_MAX);
	if (!buf || !d.text) {
		fprintf(stderr, "softmlx5 decode: out of memory\n");
		return CMD_FAILED;
	}
	argp_parse(&argp, argc, argv, 0, NULL, &d);
	out = smx_text_in(buf, OUTPUT_MAX);
	if (d.have_codes) {
		smx_print_codes(&out, &d.codes);
	} else {
		smx_dump_parse(&dump, d.text, d.len);
		understood = smx_dump_print(&out, &dump, &d.opt);
		if (!dump.count && !dump.codes_count)
			fprintf(stderr, "softmlx5 decode: no hex found\n");
	}
	fputs(buf, stdout);
	free(buf);
	free(d.text);
	return understood ? CMD_OK : CMD_FAILED;
}
