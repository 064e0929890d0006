/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies that survive bad pointers: the fault handler, and the copies it rescues.
 *
 * Two ways out of a fault. On x86-64 short copies are a leaf in assembly that touches no stack; the
 * handler knows it by its program counter and lets it return a failure, so a good copy pays nothing. All
 * else (libc's memmove, callbacks) runs under a thread-local jump buffer. */
#include "base/guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "base/bits.h"

/* SMX_GUARD_GENERIC builds what other architectures get. */
#if defined(__x86_64__) && !defined(__ILP32__) && !defined(SMX_GUARD_GENERIC)
#define SMX_GUARD_X86 1
#endif

struct smx_libc smx_libc = { memmove, memset };

#ifdef SMX_GUARD_X86
/* The processor has vectors of 32 bytes. Not static: for the assembly, and for tests. */
extern bool smx_guard_wide;
__attribute__((visibility("hidden"))) bool smx_guard_wide;

static __attribute__((constructor)) void find_vectors(void)
{
	__builtin_cpu_init();
	smx_guard_wide = __builtin_cpu_supports("avx2");
}
#endif

static __attribute__((constructor)) void find_libc(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *move, *set;

	if (!libc)
		return;		/* another libc: its names will do */
	move = dlsym(libc, "memmove");
	set = dlsym(libc, "memset");
	if (move && set) {
		memcpy(&smx_libc.move, &move, sizeof(move));
		memcpy(&smx_libc.set, &set, sizeof(set));
	}
	dlclose(libc);
}

/* One guarded stretch of a thread. bytes of 0: any address may fault. */
struct guard {
	struct guard *outer;
	const void *fault;
	uintptr_t dst, src;
	size_t bytes;
	jmp_buf out;
};

/* initial-exec: reading it from the handler never allocates. */
static __thread struct guard *innermost __attribute__((tls_model("initial-exec")));

enum { CHAIN_MAX = 16 };
static const int guarded_signals[] = { SIGSEGV, SIGBUS };

/* Handlers that were on top before ours, oldest first. Entries below count do not change. */
static struct chain {
	struct sigaction action[CHAIN_MAX];
	unsigned int count;
} chains[SMX_COUNT(guarded_signals)];
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;

/* The signal that this thread is handing to a program's handler, to notice when that handler hands
 * it back to ours: same context, other frame. A fresh signal at the same stack address has the same
 * frame too, so leaving the handler by siglongjmp() does no harm. */
static __thread struct {
	const void *context, *frame;
	unsigned int depth;
} handing __attribute__((tls_model("initial-exec")));

/* A fault at a non-canonical address comes without the address: it is the operand that is one. */
static __attribute__((cold)) const void *name_fault(const void *fault, const void *dst, const void *src)
{
#ifdef __x86_64__
	if (!fault && (int64_t)((uint64_t)(uintptr_t)dst << 16) >> 16 != (int64_t)(uintptr_t)dst)
		return dst;
	if (!fault && (int64_t)((uint64_t)(uintptr_t)src << 16) >> 16 != (int64_t)(uintptr_t)src)
		return src;
#endif
	(void)dst;
	(void)src;
	return fault;
}

#ifdef SMX_GUARD_X86
/* Stores go up in address, the last byte is stored once and last: programs poll on it. A copy of 1, 2,
 * 4, 8 or 16 bytes is one store. */
bool smx_guard_copy_leaf(void *dst, const void *src, size_t n, const void **fault);
extern const char smx_guard_text_begin[], smx_guard_text_end[], smx_guard_text_out[];

__asm__(
".pushsection .text.smx_guard,\"ax\",@progbits\n"
".globl smx_guard_copy_leaf\n"
".globl smx_guard_text_begin, smx_guard_text_end, smx_guard_text_out\n"
".hidden smx_guard_copy_leaf\n"
".hidden smx_guard_text_begin, smx_guard_text_end, smx_guard_text_out\n"
".type smx_guard_copy_leaf, @function\n"
".balign 64\n"
"smx_guard_text_begin:\n"
"smx_guard_copy_leaf:\n"
"	.cfi_startproc\n"
"	movq	%rcx, %r8\n"		/* where the way out finds the fourth argument */
"	cmpq	$16, %rdx\n"
"	jae	4f\n"
"	cmpq	$8, %rdx\n"
"	jb	1f\n"
"	movq	(%rsi), %rax\n"
"	movq	-8(%rsi,%rdx), %rcx\n"
"	je	0f\n"
"	movq	%rax, (%rdi)\n"
"0:	movq	%rcx, -8(%rdi,%rdx)\n"
"	movl	$1, %eax\n"
"	ret\n"
"1:	cmpq	$4, %rdx\n"
"	jb	2f\n"
"	movl	(%rsi), %eax\n"
"	movl	-4(%rsi,%rdx), %ecx\n"
"	je	0f\n"
"	movl	%eax, (%rdi)\n"
"0:	movl	%ecx, -4(%rdi,%rdx)\n"
"	movl	$1, %eax\n"
"	ret\n"
"2:	cmpq	$2, %rdx\n"
"	jb	3f\n"
"	movzwl	(%rsi), %eax\n"
"	movzbl	-1(%rsi,%rdx), %ecx\n"
"	movw	%ax, (%rdi)\n"
"	je	9f\n"
"	movb	%cl, -1(%rdi,%rdx)\n"
"9:	movl	$1, %eax\n"
"	ret\n"
"3:	testq	%rdx, %rdx\n"
"	je	9b\n"
"	movzbl	(%rsi), %eax\n"
"	movb	%al, (%rdi)\n"
"	movl	$1, %eax\n"
"	ret\n"
"4:	cmpq	$64, %rdx\n"
"	jb	6f\n"
"	cmpq	$128, %rdx\n"
"	jb	5f\n"
"	cmpb	$0, smx_guard_wide(%rip)\n"
"	je	5f\n"
"	prefetcht0 -128(%rsi,%rdx)\n"	/* the end of a short one comes while its beginning does */
"	prefetcht0 -64(%rsi,%rdx)\n"
"	testb	$31, %dil\n"
"	je	10f\n"
"	vmovdqu	(%rsi), %ymm0\n"		/* up to where stores are aligned */
"	vmovdqu	%ymm0, (%rdi)\n"
"	movl	%edi, %ecx\n"
"	negl	%ecx\n"
"	andl	$31, %ecx\n"
"	addq	%rcx, %rsi\n"
"	addq	%rcx, %rdi\n"
"	subq	%rcx, %rdx\n"
"	cmpq	$128, %rdx\n"
"	jb	11f\n"
"10:	vmovdqu	(%rsi), %ymm0\n"
"	vmovdqu	32(%rsi), %ymm1\n"
"	vmovdqu	64(%rsi), %ymm2\n"
"	vmovdqu	96(%rsi), %ymm3\n"
"	vmovdqa	%ymm0, (%rdi)\n"
"	vmovdqa	%ymm1, 32(%rdi)\n"
"	vmovdqa	%ymm2, 64(%rdi)\n"
"	vmovdqa	%ymm3, 96(%rdi)\n"
"	addq	$128, %rsi\n"
"	addq	$128, %rdi\n"
"	subq	$128, %rdx\n"
"	cmpq	$128, %rdx\n"
"	jae	10b\n"
"11:	vzeroupper\n"
"	testq	%rdx, %rdx\n"
"	je	8f\n"
"	cmpq	$16, %rdx\n"
"	jb	7f\n"
"	cmpq	$64, %rdx\n"
"	jb	6f\n"
"5:	movups	(%rsi), %xmm0\n"
"	movups	16(%rsi), %xmm1\n"
"	movups	32(%rsi), %xmm2\n"
"	movups	48(%rsi), %xmm3\n"
"	movups	%xmm0, (%rdi)\n"
"	movups	%xmm1, 16(%rdi)\n"
"	movups	%xmm2, 32(%rdi)\n"
"	movups	%xmm3, 48(%rdi)\n"
"	addq	$64, %rsi\n"
"	addq	$64, %rdi\n"
"	subq	$64, %rdx\n"
"	je	8f\n"
"	cmpq	$64, %rdx\n"
"	jae	5b\n"
"	cmpq	$16, %rdx\n"
"	jb	7f\n"
"6:	movups	(%rsi), %xmm0\n"
"	movups	%xmm0, (%rdi)\n"
"	addq	$16, %rsi\n"
"	addq	$16, %rdi\n"
"	subq	$16, %rdx\n"
"	je	8f\n"
"	cmpq	$16, %rdx\n"
"	jae	6b\n"
"7:	movups	-16(%rsi,%rdx), %xmm0\n"	/* reaches back into what was copied already */
"	movups	%xmm0, -16(%rdi,%rdx)\n"
"8:	movl	$1, %eax\n"
"	ret\n"
"	.cfi_endproc\n"
".size smx_guard_copy_leaf, .-smx_guard_copy_leaf\n"
"smx_guard_text_end:\n"
"smx_guard_text_out:\n"		/* the handler put the faulting address into rdx */
"	.cfi_startproc\n"
"	movq	%rdx, (%r8)\n"
"	xorl	%eax, %eax\n"
"	cmpb	$0, smx_guard_wide(%rip)\n"
"	je	1f\n"
"	vzeroupper\n"
"1:	ret\n"
"	.cfi_endproc\n"
".popsection\n"
);

static bool rescue_leaf(const siginfo_t *info, ucontext_t *context)
{
	greg_t *regs = context->uc_mcontext.gregs;
	uintptr_t pc = (uintptr_t)regs[REG_RIP];

	if (pc < (uintptr_t)smx_guard_text_begin || pc >= (uintptr_t)smx_guard_text_end)
		return false;
	regs[REG_RDX] = (greg_t)(uintptr_t)name_fault(info->si_addr, (void *)(uintptr_t)regs[REG_RDI],
						      (void *)(uintptr_t)regs[REG_RSI]);
	regs[REG_RIP] = (greg_t)(uintptr_t)smx_guard_text_out;
	return true;
}
#else
static bool rescue_leaf(const siginfo_t *info, ucontext_t *context)
{
	(void)info;
	(void)context;
	return false;
}
#endif

/* An x86 access to a non-canonical address tells no address; it is taken for the guard's. */
static bool in_guard(const struct guard *g, const siginfo_t *info)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	return !g->bytes || info->si_code == SI_KERNEL || at - g->dst < g->bytes ||
	       at - g->src < g->bytes;
}

static struct chain *chain_of(int sig)
{
	return &chains[sig == SIGBUS];
}

/* Nobody else wants the signal: what would have happened without any handler. */
static void take_default(int sig, const siginfo_t *info)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	sigaction(sig, &dfl, NULL);
	if (info->si_code <= 0)
		raise(sig);	/* sent by somebody; a fault happens again by itself when we return */
}

static void call_handler(const struct sigaction *old, int sig, siginfo_t *info, void *context)
{
	sigset_t mask;

	/* As the kernel would; the return from the signal undoes it. */
	sigorset(&mask, &((ucontext_t *)context)->uc_sigmask, &old->sa_mask);
	if (!(old->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (old->sa_flags & SA_SIGINFO)
		old->sa_sigaction(sig, info, context);
	else
		old->sa_handler(sig);
}

static void hand_on(int sig, siginfo_t *info, void *context)
{
	const void *frame = __builtin_frame_address(0);
	struct chain *chain = chain_of(sig);
	unsigned int count = __atomic_load_n(&chain->count, __ATOMIC_ACQUIRE);
	unsigned int depth = 0;
	struct sigaction *old;

	if (handing.context == context && handing.frame != frame)
		depth = handing.depth + 1;
	else
		handing.frame = frame;
	if (depth >= count) {
		take_default(sig, info);
		return;
	}
	old = &chain->action[count - 1 - depth];
	if (!(old->sa_flags & SA_SIGINFO) && old->sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (!(old->sa_flags & SA_SIGINFO) && (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN)) {
		take_default(sig, info);
		return;
	}
	handing.context = context;
	handing.depth = depth;
	if (old->sa_flags & SA_RESETHAND) {
		struct sigaction once = *old;

		*old = (struct sigaction){ .sa_handler = SIG_DFL };
		call_handler(&once, sig, info, context);
	} else {
		call_handler(old, sig, info, context);
	}
	if (!depth)
		handing.context = NULL;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct guard *g = innermost;
	int saved_errno;

	if (info->si_code > 0) {	/* a fault, not a signal that somebody sent */
		if (rescue_leaf(info, context))
			return;
		if (g && in_guard(g, info)) {
			g->fault = info->si_addr;
			/* SA_NODEFER left the mask alone, but ThreadSanitizer's own handler, which calls
			 * ours, blocks everything. */
			pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
			longjmp(g->out, 1);
		}
	}
	saved_errno = errno;
	hand_on(sig, info, context);
	errno = saved_errno;
}

static void install_one(int sig)
{
	struct sigaction ours = { .sa_sigaction = on_fault,
				  .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };
	struct chain *chain = chain_of(sig);
	struct sigaction now, *top;

	if (sigaction(sig, NULL, &now) || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault))
		return;
	top = chain->count ? &chain->action[chain->count - 1] : NULL;
	if (top && top->sa_sigaction == now.sa_sigaction) {
		*top = now;
	} else if (chain->count < CHAIN_MAX) {
		chain->action[chain->count] = now;
		__atomic_store_n(&chain->count, chain->count + 1, __ATOMIC_RELEASE);
	} else {
		chain->action[CHAIN_MAX - 1] = now;
	}
	sigaction(sig, &ours, NULL);
}

void smx_guard_install(void)
{
	pthread_mutex_lock(&install_lock);
	for (size_t i = 0; i < SMX_COUNT(guarded_signals); i++)
		install_one(guarded_signals[i]);
	pthread_mutex_unlock(&install_lock);
}

static bool copy_jump(void *dst, const void *src, size_t n, const void **fault)
{
	struct guard g;

	g.outer = innermost;
	g.dst = (uintptr_t)dst;
	g.src = (uintptr_t)src;
	g.bytes = n;
	if (_setjmp(g.out)) {
		innermost = g.outer;
		*fault = name_fault(g.fault, dst, src);
		return false;
	}
	/* The compiler must not move the copy out from between the two stores. */
	*(struct guard *volatile *)&innermost = &g;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	smx_libc.move(dst, src, n);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(struct guard *volatile *)&innermost = g.outer;
	return true;
}

#ifdef SMX_GUARD_X86
enum {
	/* Longer than this, libc's vectors win back what the jump buffer costs. */
	LEAF_MAX = 512,
	LEAF_WIDE_MAX = 256 << 10,
	TAIL_BYTES = 64,
};

static __attribute__((noinline)) bool copy_long(void *dst, const void *src, size_t n, const void **fault)
{
	/* libc stores in any order. The end of a message comes last: programs poll on it. */
	size_t head = n - TAIL_BYTES;

	return copy_jump(dst, src, head, fault) &&
	       smx_guard_copy_leaf((char *)dst + head, (const char *)src + head, TAIL_BYTES, fault);
}

bool smx_guard_copy(void *dst, const void *src, size_t n, const void **fault)
{
	if (n > LEAF_MAX && !(smx_guard_wide && n <= LEAF_WIDE_MAX))
		return copy_long(dst, src, n, fault);
	return smx_guard_copy_leaf(dst, src, n, fault);
}
#else
/* The end of a message is stored after the rest: programs poll on it. */
bool smx_guard_copy(void *dst, const void *src, size_t n, const void **fault)
{
	size_t head = n > 8 ? (n - 1) & ~(size_t)7 : 0;

	if (head) {
		if (!copy_jump(dst, src, head, fault))
			return false;
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	return copy_jump((char *)dst + head, (const char *)src + head, n - head, fault);
}
#endif

bool smx_guard_call(void (*fn)(void *arg), void *arg, const void **fault)
{
	struct guard g;

	g.outer = innermost;
	g.bytes = 0;
	if (_setjmp(g.out)) {
		innermost = g.outer;
		*fault = g.fault;
		return false;
	}
	*(struct guard *volatile *)&innermost = &g;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	fn(arg);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(struct guard *volatile *)&innermost = g.outer;
	return true;
}
