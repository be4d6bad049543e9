# bash completion for seriatim. It asks the tool itself, so that it knows every subcommand and option that --help does.

# The subcommands and options of `seriatim WORDS... --help`, one a line.
_seriatim_candidates() {
  "$@" --help 2>/dev/null | awk '
    /^[A-Z].*:$/ { section = $0; next }
    section == "Subcommands:" && /^  [a-z]/ { print $1 }
    section == "Options:" && /^  -/ {
      n = split($1, names, ",")
      for (i = 1; i <= n; ++i) if (names[i] ~ /^--/) print names[i]
    }'
}

_seriatim() {
  local current="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[0]}") word i
  for ((i = 1; i < COMP_CWORD; ++i)); do # the subcommands so far
    word="${COMP_WORDS[i]}"
    _seriatim_candidates "${words[@]}" | grep -qxF -e "$word" || break
    [[ "$word" == -* ]] && break
    words+=("$word")
  done
  local candidates
  candidates="$(_seriatim_candidates "${words[@]}")"
  mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$current")
}

# Where nothing of the tool's own fits, file names.
complete -o bashdefault -o default -F _seriatim seriatim
