_ringlog() {
  local IFS=$'\n' cur="${COMP_WORDS[COMP_CWORD]}"
  [[ "$cur" == [=:] ]] && cur=
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _ringlog ringlog
