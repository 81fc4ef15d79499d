# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# bash completion for qptrace and qp_explain, of bash 4.4 and later, with or without
# the package bash-completion.

# _qptrace_offer WORD...: those that go on as what has been typed
_qptrace_offer() {
	mapfile -t COMPREPLY < <(compgen -W "$*" -- "${COMP_WORDS[COMP_CWORD]}")
}

# _qptrace_files [GLOB]: files that match, and folders
_qptrace_files() {
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -d -- "${COMP_WORDS[COMP_CWORD]}" &&
		compgen -f -X "!${1:-*}" -- "${COMP_WORDS[COMP_CWORD]}" |
		while IFS= read -r name; do [[ -d $name ]] || echo "$name"; done)
}

# A command with arguments of its own: whatever completes that.
_qptrace_command() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((COMP_CWORD == $1)); then
		mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
	else
		compopt -o default
	fi
}

_qptrace_report() {
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--html) _qptrace_files '*.html' && return ;;
	--perfetto) _qptrace_files && return ;;
	--lang) _qptrace_offer en zh && return ;;
	esac
	if [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then
		_qptrace_offer --html --perfetto --json --lang --all --help
	else
		_qptrace_files '*.qpt*'
	fi
}

_qptrace() {
	local i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-o | --last | --stall | --lang) ((++i)) ;;
		--) _qptrace_command $((i + 1)) && return ;;
		-*) ;;
		report | dump) _qptrace_report && return ;;
		*) _qptrace_command "$i" && return ;;
		esac
	done
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	-o) _qptrace_files '*.qpt*' && return ;;
	--stall | --last) return ;;
	--lang) _qptrace_offer en zh && return ;;
	esac
	if [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then
		_qptrace_offer -o --last --control-only --stall --quiet --lang --help --version
	else
		_qptrace_command "$COMP_CWORD"
		[[ report != "${COMP_WORDS[COMP_CWORD]}"* ]] || COMPREPLY+=(report)
	fi
}

_qp_explain() {
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	-t | --type) _qptrace_offer RC UC UD XRC_INI XRC_TGT && return ;;
	-l | --lang) _qptrace_offer en zh && return ;;
	esac
	if [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then
		_qptrace_offer --type --errno --cause --causes --lang --markdown --json \
			--help --version
	else
		_qptrace_offer RESET INIT RTR RTS SQD SQE ERR
	fi
}

complete -F _qptrace qptrace
complete -F _qp_explain qp_explain
