// SPDX-License-Identifier: MIT
/*
 * main.c —— 故障目录：逐个犯错，看程序看见了什么、解释器说了什么、说得对不对
 *
 * 每个故障在自己的子进程里跑：它会把 QP 弄坏、换掉身份、甚至卡住，都不能连累下一
 * 个；留下的对象由内核在进程退出时收走。判定有两条，缺一不可：
 *   - 程序看见的正是这个症状（errno、status、没有 completion）；
 *   - 解释器说出的第一个原因就是那个错误。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "explain/rxe_facts.h"
#include "faults.h"

#include <errno.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S	   20 /* 一个故障至多这么久 */
#define BACK_MS	   10000
#define LOOK_SIZE  16384
#define LAB_MARK   "/run/rdma-lab-vm"
#define WRONG_USE  2
#define CANNOT_RUN 77

static const struct fault *const groups[] = {
	modify_faults,	  memory_faults, queue_faults,	 completion_faults,
	one_sided_faults, stall_faults,	 network_faults, exchange_faults,
};
#define N_GROUPS (sizeof(groups) / sizeof(groups[0]))

static bool matches(const char *text, const char *pattern)
{
	regex_t regex;
	bool match;

	if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB))
		return false;
	match = !regexec(&regex, text, 0, NULL, 0);
	regfree(&regex);
	return match;
}

static void print_lines(const char *label, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		report_line("%9s %.*s", label, (int)len, text);
		text += len + (text[len] == '\n');
	}
}

/*
 * 有的内核上，症状是另一个样子；fine 的连错都不算，谁也不许被怪罪。哪些内核，
 * 见 explain/rxe_facts.h。
 */
#define FLUSHED RXE_HIDES_LOCAL_ERRORS, "wc.status 5 ", false
static const struct {
	const char *fault;
	enum rxe_fact fact;
	const char *saw;
	bool fine;
} elsewhere[] = {
	{ "lkey-wrong", FLUSHED },
	{ "mr-deregistered", FLUSHED },
	{ "lkey-of-another-pd", FLUSHED },
	{ "sge-outside-mr", FLUSHED },
	{ "write-of-2-gib", FLUSHED },
	{ "window-on-mr-without-bind", FLUSHED },
	{ "window-outside-its-mr", FLUSHED },
	{ "uc-read", FLUSHED },
	{ "mtu-lowered", FLUSHED },
	{ "state-bit-forgotten", RXE_TAKES_MASKS_WITHOUT_STATE,
	  "ibv_modify_qp: 0", false },
	{ "mr-shared-read-only", RXE_MAPS_READ_ONLY_FILES, "ibv_reg_mr: 0",
	  true },
	{ "mr-on-demand", RXE_REGISTERS_ON_DEMAND, "ibv_reg_mr: 0", true },
};

/* 在这个内核上，这个错误看上去该是什么样、该说是什么原因。*/
static void expect_here(const struct fault *fault, const char **saw,
			const char **cause)
{
	*saw = fault->saw;
	*cause = fault->cause;
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
		if (strcmp(elsewhere[i].fault, fault->name) ||
		    !rxe_fact_holds(elsewhere[i].fact))
			continue;
		*saw = elsewhere[i].saw;
		*cause = elsewhere[i].fine ? "" : fault->cause;
	}
}

/* 返回子进程的退出码：0 对，1 错。*/
static int judge(const struct fault *fault, const struct rig *rig)
{
	const struct explanation *why = &rig->why;
	struct explain_words words;
	const char *saw, *cause;
	char ids[128];

	expect_here(fault, &saw, &cause);
	snprintf(ids, sizeof(ids), "^(%s)$", cause);
	report_line("%s: %s", fault->name, fault->mistake);
	report_line("%9s %s", "saw:", rig->saw[0] ? rig->saw : "nothing");
	explain_in_words(&words, why, false);
	if (why->id)
		report_line("%9s %s", "said:", words.cause);
	if (words.next[0])
		report_line("%9s %s", "next:", words.next);
	print_lines("seen:", words.seen);
	if (!matches(rig->saw, saw)) {
		report_line("%9s the symptom is not \"%s\"", "FAIL", saw);
		return 1;
	}
	if (!cause[0] && !why->id) {
		report_line("%9s none: this kernel does it", "ok");
		return 0;
	}
	if (!why->id) {
		report_line("%9s nobody said %s", "FAIL", cause);
		return 1;
	}
	if (!matches(why->id, ids) || !words.next[0]) {
		report_line("%9s the cause is not %s, but %s", "FAIL", why->id,
			    cause);
		return 1;
	}
	report_line("%9s %s", "ok", why->id);
	return 0;
}

static void run_here(const struct fault *fault)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	if (!rig)
		_exit(WRONG_USE);
	/* labs/qptrace 的记录以此为名：每个故障是一个进程，一份记录。*/
	program_invocation_short_name = strdup(fault->name);
	alarm(LIMIT_S);
	rig_prepare(rig, fault->ready);
	fault->run(rig);
	_exit(judge(fault, rig));
}

/* ---- 改动过的机器 --------------------------------------------------------- */

/* 故障动得到的一切，逐行排好序。*/
static void look(char out[LOOK_SIZE])
{
	static const char script[] =
		"{ cd /sys/class/infiniband && grep . */ports/1/state "
		"*/ports/1/gids/[0-3]; stat -c '%a %n' /dev/infiniband/*; "
		"ip -br link; ip route; ip neigh show nud permanent; "
		"tc qdisc; nft list tables; } 2>/dev/null | sort";
	FILE *from = popen(script, "r");
	size_t n = from ? fread(out, 1, LOOK_SIZE - 1, from) : 0;

	out[n] = '\0';
	if (from)
		pclose(from);
}

/* 走回去，等到一切如初：link 起来之后，GID 要过一会儿才回到表里。*/
static int go_back(const struct fault *fault, const char *before)
{
	const int64_t deadline = deadline_in_ms(BACK_MS);
	char now[LOOK_SIZE];

	if (system(fault->undo))
		report_line("%9s %s", "undo:", fault->undo);
	do {
		look(now);
		if (!strcmp(now, before))
			return 0;
	} while (!deadline_passed(deadline) &&
		 !deadline_sleep_ms(100, deadline));
	report_line("%9s the machine is not as it was before %s", "FAIL",
		    fault->name);
	print_lines("before:", before);
	print_lines("now:", now);
	return 1;
}

/* ---- 一个故障 -------------------------------------------------------------- */

static int run_child(const struct fault *fault)
{
	int status;
	pid_t pid;

	report_flush();
	pid = fork();
	if (pid == 0)
		run_here(fault);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return WRONG_USE;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	report_line("%s: %s", fault->name, fault->mistake);
	report_line("%9s it ended by signal %d (%s)", "FAIL", WTERMSIG(status),
		    strsignal(WTERMSIG(status)));
	return 1;
}

static int run_and_go_back(const struct fault *fault)
{
	static char before[LOOK_SIZE]; /* 第一个故障之前：此后每次都回到它 */
	int rc;

	if (!before[0])
		look(before);
	rc = run_child(fault);
	return go_back(fault, before) ? 1 : rc;
}

static int run_fault(const struct fault *fault)
{
	if (!fault->undo)
		return run_child(fault);
	if (access(LAB_MARK, F_OK))
		return fail(CANNOT_RUN,
			    "labs/faults/run NAME does it in a VM of its own",
			    "%s changes the machine", fault->name);
	return run_and_go_back(fault);
}

static const struct fault *find(const char *name)
{
	for (size_t g = 0; g < N_GROUPS; g++)
		for (const struct fault *f = groups[g]; f->name; f++)
			if (!strcmp(f->name, name))
				return f;
	return NULL;
}

static int list_faults(void)
{
	for (size_t g = 0; g < N_GROUPS; g++)
		for (const struct fault *f = groups[g]; f->name; f++)
			report_result("%s\t%s\t%s\t%s", f->name,
				      f->undo ? "changes" : "shared",
				      f->mistake, f->cause);
	return report_flush() ? 1 : 0;
}

int main(int argc, char *argv[])
{
	int worst = 0;

	if (argc == 2 && !strcmp(argv[1], "--list"))
		return list_faults();
	if (argc < 2)
		return fail(WRONG_USE,
			    "faults --list | NAME...; labs/faults/run is meant "
			    "for people",
			    "wrong usage");
	for (int i = 1; i < argc; i++) {
		const struct fault *fault = find(argv[i]);
		int rc;

		if (!fault)
			return fail(WRONG_USE,
				    "labs/faults/run --list shows them all",
				    "there is no fault \"%s\"", argv[i]);
		rc = run_fault(fault);
		worst = rc > worst ? rc : worst;
	}
	return worst;
}
