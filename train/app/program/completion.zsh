#compdef @PROGRAM@
# Completes the commands, flags and files of @PROGRAM@ in zsh.
@FUNCTION@() {
  local flags="--help --version --threads --memory-check" commands=""
  case "${words[2]}" in
    # @CASES@
  esac
  if ((CURRENT == 2)); then
    compadd -- @COMMANDS@ --help --version
  elif [[ "${words[CURRENT]}" == -* ]]; then
    compadd -- ${=flags}
  else
    compadd -- ${=commands}
    _files
  fi
}
compdef @FUNCTION@ @PROGRAM@
