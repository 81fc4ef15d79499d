// SPDX-License-Identifier: MIT
/*
 * qp_explain.c —— 把 common/qp_table 印给人看，也给程序看
 *
 *	qp_explain                   五种 QP 的全部表
 *	qp_explain --type UD         一种
 *	qp_explain INIT RTR          一步（缺省是 RC），每个属性位一段说明
 *	qp_explain --errno 22 INIT RTR   为什么被拒绝：按内核检查的次序（qp_errno.c）
 *	qp_explain --markdown …      课文里的参考表由它生成，不手抄
 *	qp_explain --json …          给脚本
 *	qp_explain --cause ID        一行原因（causes.def），按 LANG 用中文或英文
 *	qp_explain --causes          全部
 *
 * 问一条不存在的路不算用法错：它照样回答——从 FROM 能去哪里、怎样绕到 TO——然后以
 * 1 结束，脚本据此知道“不合法”。
 */
#include "base/arguments.h"
#include "base/report.h"
#include "explain/explain.h"
#include "explain/qp_table.h"
#include "qp_errno.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION /* 由 Makefile 给出 */
#define VERSION "unknown"
#endif
#define LINE_WIDTH 79
#define ALL_BITS   (~0)
#define NO_ERROR   (-1)

enum format {
	FORMAT_TEXT,
	FORMAT_MARKDOWN,
	FORMAT_JSON
};

struct request {
	enum format format;
	bool chinese;
	int error; /* NO_ERROR: not asked for */
	bool one_type, one_step, causes;
	const char *cause; /* or all of them */
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
};

/* ---- 共用 --------------------------------------------------------------- */

/* 编号与表的行号相同；括号里的是一个状态到它自己。*/
static const char diagram[] =
	"    +<----------+<----------+<----------+<----------+<----------+\n"
	"    |           3           7          10          14          18\n"
	"    v           |           |           |           |           |\n"
	"+-------+   +-------+   +-------+   +-------+   +-------+   "
	"+-------+\n"
	"| RESET |-2>| INIT  |-5>|  RTR  |-8>|  RTS  |12>|  SQD  |   |  SQE  "
	"|\n"
	"|  (1)  |   |  (4)  |   |       |   | (11)  |<15| (16)  |   |       "
	"|\n"
	"+-------+   +-------+   +-------+   +-------+   +-------+   "
	"+-------+\n"
	"    ^           |           |         |   ^         |         |   |\n"
	"   21           6           9        13  19        17         |  20\n"
	"    |           |           |         |   +---------|---------+   |\n"
	"    |           v           v         v             v             v\n"
	"+-------+<------+-----------+---------+-------------+-------------+\n"
	"|  ERR  |\n"
	"| (22)  |   (n): the transition from a state to itself\n"
	"+-------+\n";

/* 一种 QP 的任何一步用得到的位。*/
static int bits_of_type(enum ibv_qp_type type)
{
	const struct qp_transition *row;
	int bits = IBV_QP_STATE;

	for (size_t i = 0; i < QP_TRANSITIONS; i++) {
		row = qp_transition_at(type, i);
		bits |= row->required | row->optional;
	}
	return bits;
}

/* "STATE|AV" 换一个分隔；"-" 表示一个也没有。*/
static const char *bits_text(char *out, size_t size, int bits,
			     const char *separator)
{
	char names[512];
	size_t used = 0;

	qp_mask_text(names, sizeof(names), bits);
	snprintf(out, size, "-");
	for (char *rest = names, *name; (name = strsep(&rest, "|"));) {
		if (!*name || used >= size)
			continue;
		used += (size_t)snprintf(out + used, size - used, "%s%s",
					 used ? separator : "", name);
	}
	return out;
}

/* 按词折行：第一行接在已经印出的 @indent 列之后，其余缩进同样多。*/
static void print_wrapped(int indent, const char *text)
{
	int column = indent;

	while (*text) {
		int word = (int)strcspn(text, " ");

		if (column > indent && column + 1 + word > LINE_WIDTH) {
			printf("\n%*s", indent, "");
			column = indent;
		}
		column += printf("%s%.*s", column > indent ? " " : "", word,
				 text);
		text += word;
		text += strspn(text, " ");
	}
	putchar('\n');
}

/* ---- 文字 --------------------------------------------------------------- */

static const char *in(bool chinese, const char *english, const char *other)
{
	return chinese ? other : english;
}

static void text_attributes(int bits, bool chinese)
{
	size_t count;
	const struct qp_attr_info *info = qp_attr_infos(&count);

	for (; count--; info++) {
		if (!(info->bit & bits))
			continue;
		printf("  %-20s %-14s ", info->name,
		       qp_attr_source_name(info->source, chinese));
		print_wrapped(38, info->members);
		printf("      %s\n      %s\n", info->what[chinese],
		       info->range[chinese]);
	}
}

static void text_row(const struct request *ask, size_t number,
		     const struct qp_transition *row)
{
	const char *const *note =
		qp_transition_note(ask->type, row->from, row->to);
	char bits[512];

	printf("%2zu  %s -> %s\n    required: ", number,
	       qp_state_name(row->from), qp_state_name(row->to));
	print_wrapped(14, bits_text(bits, sizeof(bits),
				    IBV_QP_STATE | row->required, " "));
	if (row->optional) {
		printf("    optional: ");
		print_wrapped(14, bits_text(bits, sizeof(bits), row->optional,
					    " "));
	}
	printf("    ");
	print_wrapped(4, qp_transition_text(row->from, row->to)[ask->chinese]);
	if (note) {
		printf("    note: ");
		print_wrapped(10, note[ask->chinese]);
	}
}

static void text_type(const struct request *ask)
{
	printf(in(ask->chinese,
		  "%s: %d legal transitions; anything else is EINVAL\n\n",
		  "%s：%d 种合法转换，其余一律 EINVAL\n\n"),
	       qp_type_name(ask->type), QP_TRANSITIONS);
	if (ask->type == IBV_QPT_RC)
		printf("%s\n", diagram);
	for (size_t i = 0; i < QP_TRANSITIONS; i++)
		text_row(ask, i + 1, qp_transition_at(ask->type, i));
	putchar('\n');
}

static void text_step(const struct request *ask,
		      const struct qp_transition *row)
{
	const char *const *note =
		qp_transition_note(ask->type, row->from, row->to);

	printf("%s %s -> %s: legal\n  ", qp_type_name(ask->type),
	       qp_state_name(row->from), qp_state_name(row->to));
	print_wrapped(2, qp_transition_text(row->from, row->to)[ask->chinese]);
	if (note) {
		printf("  note: ");
		print_wrapped(8, note[ask->chinese]);
	}
	printf("\nrequired\n");
	text_attributes(row->required | IBV_QP_STATE, ask->chinese);
	printf("\noptional\n");
	text_attributes(row->optional, ask->chinese);
	if (!row->optional)
		printf("  none\n");
}

/* ---- Markdown ----------------------------------------------------------- */

static void markdown_attributes(int bits, bool chinese)
{
	size_t count;
	const struct qp_attr_info *info = qp_attr_infos(&count);

	printf("%s\n|---|---|---|---|---|\n",
	       in(chinese,
		  "| bit `IBV_QP_`… | member of `ibv_qp_attr` | who knows it | "
		  "what it is | values |",
		  "| 位 `IBV_QP_`… | `ibv_qp_attr` 的成员 | 谁知道 | 是什么 | "
		  "取值 |"));
	for (size_t i = 0; i < count; i++)
		if (info[i].bit & bits)
			printf("| %s | %s | %s | %s | %s |\n", info[i].name,
			       info[i].members,
			       qp_attr_source_name(info[i].source, chinese),
			       info[i].what[chinese], info[i].range[chinese]);
}

static const char *markdown_heads(bool chinese)
{
	return in(chinese,
		  "required, besides STATE | optional | what happens |",
		  "必需（STATE 之外） | 可选 | 发生什么 |");
}

static void markdown_row(const struct request *ask, const char *number,
			 const struct qp_transition *row)
{
	const char *const *note =
		qp_transition_note(ask->type, row->from, row->to);
	char required[512], optional[512];

	printf("| %s%s → %s | %s | %s | %s%s%s |\n", number,
	       qp_state_name(row->from), qp_state_name(row->to),
	       bits_text(required, sizeof(required), row->required, ", "),
	       bits_text(optional, sizeof(optional), row->optional, ", "),
	       qp_transition_text(row->from, row->to)[ask->chinese],
	       note ? in(ask->chinese, "; ", "；") : "",
	       note ? note[ask->chinese] : "");
}

static void markdown_type(const struct request *ask)
{
	char number[32];

	printf(in(ask->chinese,
		  "**%s**: %d legal transitions; anything else is `EINVAL`\n\n",
		  "**%s**：%d 种合法转换，其余一律 `EINVAL`\n\n"),
	       qp_type_name(ask->type), QP_TRANSITIONS);
	if (ask->type == IBV_QPT_RC)
		printf("```text\n%s```\n\n", diagram);
	printf("| # | %s | %s\n|---|---|---|---|---|\n",
	       in(ask->chinese, "from → to", "从 → 到"),
	       markdown_heads(ask->chinese));
	for (size_t i = 0; i < QP_TRANSITIONS; i++) {
		snprintf(number, sizeof(number), "%zu | ", i + 1);
		markdown_row(ask, number, qp_transition_at(ask->type, i));
	}
	putchar('\n');
}

static void markdown_step(const struct request *ask,
			  const struct qp_transition *row)
{
	printf("| %s | %s\n|---|---|---|---|\n", qp_type_name(ask->type),
	       markdown_heads(ask->chinese));
	markdown_row(ask, "", row);
	putchar('\n');
	markdown_attributes(IBV_QP_STATE | row->required | row->optional,
			    ask->chinese);
}

/* ---- 文字与 Markdown：没有这条路 ------------------------------------------- */

static void print_illegal(const struct request *ask)
{
	const bool page = ask->format == FORMAT_MARKDOWN;
	const char *item = page ? "- " : "  ", *between = "";
	enum ibv_qp_state path[QP_PATH_MAX];
	size_t length = qp_path(ask->type, ask->from, ask->to, path);

	printf(page ? "**%s %s → %s**: not legal, the kernel answers "
		      "`EINVAL`\n\n"
		    : "%s %s -> %s: not legal, the kernel answers EINVAL\n",
	       qp_type_name(ask->type), qp_state_name(ask->from),
	       qp_state_name(ask->to));
	printf("%slegal from %s: ", item, qp_state_name(ask->from));
	for (int to = 0; to < QP_STATES; to++)
		if (qp_transition(ask->type, ask->from, to)) {
			printf("%s%s", between, qp_state_name(to));
			between = ", ";
		}
	printf("\n%sway to %s: ", item, qp_state_name(ask->to));
	if (!length)
		printf("none: a QP enters %s only by itself, when a send fails",
		       qp_state_name(ask->to));
	for (size_t i = 0; i < length; i++)
		printf("%s%s", i ? " -> " : "", qp_state_name(path[i]));
	putchar('\n');
}

/* ---- JSON --------------------------------------------------------------- */

static json_t *json_names(int bits)
{
	json_t *names = json_array();
	size_t count;
	const struct qp_attr_info *info = qp_attr_infos(&count);

	for (size_t i = 0; i < count; i++)
		if (info[i].bit & bits)
			json_array_append_new(names, json_string(info[i].name));
	return names;
}

/* "a, b" 拆成数组。*/
static json_t *json_members(const char *members)
{
	json_t *list = json_array();

	while (*members) {
		size_t length = strcspn(members, ",");

		json_array_append_new(list, json_stringn(members, length));
		members += length;
		members += strspn(members, ", ");
	}
	return list;
}

static json_t *json_attributes(int bits)
{
	json_t *list = json_array();
	size_t count;
	const struct qp_attr_info *info = qp_attr_infos(&count);

	for (size_t i = 0; i < count; i++) {
		if (!(info[i].bit & bits))
			continue;
		json_array_append_new(
			list,
			json_pack("{s:s, s:i, s:o, s:s, s:s, s:s}", "name",
				  info[i].name, "bit", info[i].bit, "members",
				  json_members(info[i].members), "source",
				  qp_attr_source_name(info[i].source, false),
				  "what", info[i].what[0], "range",
				  info[i].range[0]));
	}
	return list;
}

/* 脚本看的，总是英文。*/
static json_t *json_row(enum ibv_qp_type type, const struct qp_transition *row)
{
	const char *const *note = qp_transition_note(type, row->from, row->to);
	int required = row->required | IBV_QP_STATE;

	return json_pack("{s:s, s:s, s:o, s:o, s:i, s:i, s:s, s:s?}", "from",
			 qp_state_name(row->from), "to", qp_state_name(row->to),
			 "required", json_names(required), "optional",
			 json_names(row->optional), "required_mask", required,
			 "optional_mask", row->optional, "what",
			 qp_transition_text(row->from, row->to)[0], "note",
			 note ? note[0] : NULL);
}

static json_t *json_rows(enum ibv_qp_type type)
{
	json_t *list = json_array();

	for (size_t i = 0; i < QP_TRANSITIONS; i++)
		json_array_append_new(
			list, json_row(type, qp_transition_at(type, i)));
	return json_pack("{s:s, s:o}", "type", qp_type_name(type),
			 "transitions", list);
}

static json_t *json_step(const struct request *ask,
			 const struct qp_transition *row)
{
	int bits = IBV_QP_STATE | row->required | row->optional;
	json_t *object = json_pack("{s:s, s:b}", "type",
				   qp_type_name(ask->type), "legal", 1);

	json_object_update_new(object, json_row(ask->type, row));
	json_object_set_new(object, "attributes", json_attributes(bits));
	return object;
}

static json_t *json_illegal(const struct request *ask)
{
	enum ibv_qp_state path[QP_PATH_MAX];
	size_t length = qp_path(ask->type, ask->from, ask->to, path);
	json_t *targets = json_array(), *way = json_array();

	for (int to = 0; to < QP_STATES; to++)
		if (qp_transition(ask->type, ask->from, to))
			json_array_append_new(targets,
					      json_string(qp_state_name(to)));
	for (size_t i = 0; i < length; i++)
		json_array_append_new(way, json_string(qp_state_name(path[i])));
	return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o}", "type",
			 qp_type_name(ask->type), "from",
			 qp_state_name(ask->from), "to", qp_state_name(ask->to),
			 "legal", 0, "legal_from", targets, "path", way);
}

static int print_json(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;

	json_decref(object);
	if (!text)
		return fail(1, "free some memory", "the JSON cannot be built");
	puts(text);
	free(text);
	return 0;
}

/* ---- 一步、一种、全部 ----------------------------------------------------- */

static int show_errno(const struct request *ask)
{
	struct qp_step step = { ask->type, ask->from, ask->to };

	if (!qp_transition(ask->type, ask->from, ask->to)) {
		print_illegal(ask);
		return 1;
	}
	return show_checks(&step, ask->error, ask->chinese,
			   ask->format == FORMAT_MARKDOWN);
}

static int show_step(const struct request *ask)
{
	const struct qp_transition *row =
		qp_transition(ask->type, ask->from, ask->to);
	int rc = 0;

	switch (ask->format) {
	case FORMAT_TEXT:
		row ? text_step(ask, row) : print_illegal(ask);
		break;
	case FORMAT_MARKDOWN:
		row ? markdown_step(ask, row) : print_illegal(ask);
		break;
	case FORMAT_JSON:
		rc = print_json(row ? json_step(ask, row) : json_illegal(ask));
		break;
	}
	return rc || !row ? 1 : 0;
}

static int show_json(const enum ibv_qp_type *type, size_t types, int bits)
{
	json_t *list = json_array();

	for (size_t i = 0; i < types; i++)
		json_array_append_new(list, json_rows(type[i]));
	return print_json(json_pack("{s:o, s:o}", "types", list, "attributes",
				    json_attributes(bits)));
}

static int show_types(const struct request *ask)
{
	const enum ibv_qp_type *type = &ask->type;
	struct request one = *ask;
	int bits = ALL_BITS;
	size_t types = 1;

	if (ask->one_type)
		bits = bits_of_type(*type);
	else
		type = qp_types(&types);
	if (ask->format == FORMAT_JSON)
		return show_json(type, types, bits);
	for (size_t i = 0; i < types; i++) {
		one.type = type[i];
		ask->format == FORMAT_TEXT ? text_type(&one)
					   : markdown_type(&one);
	}
	if (ask->format == FORMAT_TEXT) {
		printf("attributes\n");
		text_attributes(bits, ask->chinese);
	} else {
		markdown_attributes(bits, ask->chinese);
	}
	return 0;
}

/* ---- 原因 --------------------------------------------------------------- */

/* {1} 要等规则给出参数才有内容。*/
static const char *with_gaps(char *out, size_t size, const char *text)
{
	size_t used = 0;

	for (; *text && used + 4 < size; text++) {
		if (text[0] == '{') {
			memcpy(out + used, "...", 3);
			used += 3;
			text += 2;
		} else {
			out[used++] = *text;
		}
	}
	out[used] = '\0';
	return out;
}

static void show_cause(const struct explain_row *row, enum format format,
		       bool chinese)
{
	char cause[600], next[600];

	with_gaps(cause, sizeof(cause), row->text[chinese]);
	with_gaps(next, sizeof(next), row->next[chinese]);
	if (format == FORMAT_MARKDOWN)
		printf("| `%s`%s | %s | %s |\n", row->id,
		       row->hint ? chinese ? "（提示）" : " (hint)" : "", cause,
		       next);
	else
		printf("%s%s\n    %s\n    %s%s\n", row->id,
		       row->hint ? chinese ? "（提示）" : " (hint)" : "", cause,
		       chinese ? "下一步：" : "next: ", next);
}

static json_t *json_cause(const struct explain_row *row)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "id", row->id, "certainty",
			 row->hint ? "hint" : "cause", "cause", row->text[0],
			 "next", row->next[0]);
}

/* @id NULL: 全部。*/
static int show_causes(const struct request *ask)
{
	const char *id = ask->cause;
	const enum format format = ask->format;
	size_t count;
	const struct explain_row *row = explain_rows(&count);
	json_t *list = json_array();
	int rc = 1;

	if (format == FORMAT_MARKDOWN)
		puts(ask->chinese ? "| id | 原因 | 下一步 |\n|---|---|---|"
				  : "| id | cause | next |\n|---|---|---|");
	for (; count--; row++) {
		if (!row->next[0] || (id && strcmp(id, row->id)))
			continue;
		rc = 0;
		if (format == FORMAT_JSON)
			json_array_append_new(list, json_cause(row));
		else
			show_cause(row, format, ask->chinese);
	}
	if (format == FORMAT_JSON)
		return print_json(list) || rc;
	json_decref(list);
	return rc;
}

/* ---- 命令行 ------------------------------------------------------------- */

static const char head[] =
	"usage: qp_explain [--type TYPE] [--errno N] [--markdown | --json] "
	"[FROM TO]\n"
	"       qp_explain --cause ID | --causes [--markdown | --json]\n\n"
	"Print which transitions of a QP are legal and which attributes each "
	"one\n"
	"requires and allows: the one from FROM to TO, those of one type, or "
	"all.\n"
	"Or print a cause that the programs here and qptrace name, and the "
	"next "
	"step.\n\n";
static const char tail[] =
	"\nFROM, TO: RESET, INIT, RTR, RTS, SQD, SQE, ERR, in any case.\n"
	"Exit code: 0 done, 1 FROM -> TO is not legal or there is no such "
	"cause,\n"
	"2 wrong usage.\n";

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage("see qp_explain --help", what, value);
}

static int settle(struct request *ask, const char *type, int count,
		  char *const state[])
{
	if (type && !qp_type_by_name(type, &ask->type))
		return bad_usage("not RC, UC, UD, XRC_INI or XRC_TGT", type);
	ask->one_type = type;
	ask->one_step = count;
	if (!count)
		return -1;
	if (count != 2)
		return bad_usage("give FROM and TO, or neither", state[0]);
	if (!qp_state_by_name(state[0], &ask->from))
		return bad_usage("not a state", state[0]);
	if (!qp_state_by_name(state[1], &ask->to))
		return bad_usage("not a state", state[1]);
	return -1;
}

/* 返回 -1 继续，否则是退出码。*/
static int parse(struct request *ask, int argc, char *argv[])
{
	const char *type = NULL, *lang = NULL, *cause = NULL;
	int error = NO_ERROR;
	bool markdown, json, version, causes;
	const struct option_row rows[] = {
		{ 't', "type", "TYPE",
		  "RC, UC, UD, XRC_INI, XRC_TGT (default: all; with FROM TO: "
		  "RC)",
		  TEXT(type) },
		{ 'e', "errno", "N",
		  "what FROM -> TO is refused for with this errno (0: any), in "
		  "the kernel's order",
		  NUMBER(error, NO_ERROR, 0, 133) },
		{ 'l', "lang", "LANG", "zh, or en (default: as LANG says)",
		  TEXT(lang) },
		{ 'c', "cause", "ID", "this cause, as in report --json",
		  TEXT(cause) },
		{ 0, "causes", NULL, "all of them", FLAG(causes) },
		{ 'm', "markdown", NULL, "tables for a page", FLAG(markdown) },
		{ 'j', "json", NULL, "one JSON object", FLAG(json) },
		{ 0, "version", NULL, "print it, and nothing else",
		  FLAG(version) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = {
		"see qp_explain --help", head, tail, 19, NULL, rows
	};
	int rc = take_options(&line, &argc, &argv);

	if (rc >= 0)
		return rc;
	if (version) {
		puts("qp_explain " VERSION);
		return 0;
	}
	if (lang && strcmp(lang, "zh") && strcmp(lang, "en"))
		return bad_usage("not zh or en", lang);
	if (markdown && json)
		return bad_usage("choose one of them", "--markdown, --json");
	*ask = (struct request){
		.type = IBV_QPT_RC,
		.error = error,
		.chinese = explain_speaks_chinese(lang),
		.format = markdown ? FORMAT_MARKDOWN
			  : json   ? FORMAT_JSON
				   : FORMAT_TEXT,
		.cause = cause,
		.causes = cause || causes,
	};
	if (error != NO_ERROR && (json || argc != 2))
		return bad_usage("give FROM and TO, and no --json", "--errno");
	if (ask->causes && (type || argc))
		return bad_usage("not with --cause", type ? type : argv[0]);
	return settle(ask, type, argc, argv);
}

int main(int argc, char *argv[])
{
	struct request ask;
	int rc = parse(&ask, argc, argv);

	if (rc < 0 && ask.error != NO_ERROR)
		rc = show_errno(&ask);
	else if (rc < 0 && ask.causes)
		rc = show_causes(&ask);
	else if (rc < 0)
		rc = ask.one_step ? show_step(&ask) : show_types(&ask);
	return report_flush() ? 1 : rc;
}
