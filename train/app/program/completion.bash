# Completes the commands, flags and files of @PROGRAM@ in bash.
@FUNCTION@() {
  local flags="--help --version --threads --memory-check" commands="" current="${COMP_WORDS[COMP_CWORD]}"
  case "${COMP_WORDS[1]}" in
    # @CASES@
  esac
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$commands" -- "$current") $(compgen -f -- "$current"))
  fi
}
complete -o filenames -F @FUNCTION@ @PROGRAM@
