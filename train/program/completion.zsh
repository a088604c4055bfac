#compdef eddy
# Completes eddy's commands, flags and files in zsh.
_eddy() {
  local flags="--help --version --threads" commands=""
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
compdef _eddy eddy
