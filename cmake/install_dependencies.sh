#!/usr/bin/env bash
# Installs what Eddy needs to build, test and fetch its sample text: Debian 12 or later, Ubuntu 24.04 or later, and the
# systems derived from them, such as Linux Mint, Pop!_OS, Kali and Raspberry Pi OS.
# Further packages can be named, such as doxygen, for the API pages. Only missing ones are installed; when nothing is
# missing, neither root nor a network is needed. On another system or without a network it says what is needed and ends
# well: the build then says what it does not find.
# EDDY_NO_INSTALL=1 leaves the system as it is. EDDY_NO_OPTIONAL=1 leaves out what the program does without.
set -euo pipefail

if [[ -n "${EDDY_NO_INSTALL:-}" ]]; then
  echo "dependencies: EDDY_NO_INSTALL is set, so nothing is installed"
  exit 0
fi

packages=(
  g++ cmake ninja-build pkg-config  # the build
  libopenblas-dev                   # matrix products
  libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libsentencepiece-dev
  libabsl-dev                       # headers that those of SentencePiece 0.2.2 and later include
  libxxhash-dev                     # digests of checkpoints, from its header
  doctest-dev                       # tests
  curl                              # fetches tiny Shakespeare once
  "$@"
)
optional=(
  libopenmpi-dev openmpi-bin        # several processes that share a run
  libevent-dev                      # eddy watch
  libedit-dev                       # editing lines in eddy chat
)
if [[ -z "${EDDY_NO_OPTIONAL:-}" ]]; then packages+=("${optional[@]}"); fi

# A package may be installed for several architectures: one line each.
is_installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}\n' "$1" 2>/dev/null)" =~ (^|$'\n')installed($|$'\n') ]]
}

# Prints a variable of this system's description.
release() {
  # shellcheck source=/dev/null
  (unset "$1" && . /etc/os-release && echo "${!1:-}")
}

# Whether this is a system whose packages are new enough. Testing and unstable have no version number: they are. A derived
# system numbers its versions in its own way, but names the release that its packages come from; the names of those that
# are too old are known, and others are tried.
is_supported() {
  [[ -r /etc/os-release ]] && command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || return 1
  local version least name
  version="$(release VERSION_ID)"
  case "$(release ID)" in
    debian) least=12 ;;
    ubuntu) least=24.04 ;;
    *)
      [[ " $(release ID_LIKE) " =~ \ (debian|ubuntu)\  ]] || return 1
      for name in UBUNTU_CODENAME DEBIAN_CODENAME VERSION_CODENAME; do
        case "$(release $name)" in
          jessie | stretch | buster | bullseye) return 1 ;;
          trusty | xenial | bionic | focal | jammy | kinetic | lunar | mantic) return 1 ;;
        esac
      done
      return 0
      ;;
  esac
  [[ -z "$version" ]] || dpkg --compare-versions "$version" ge "$least"
}

if [[ "$(uname)" == Darwin ]]; then
  echo "dependencies: nothing is installed on macOS. Eddy needs, of Homebrew:"
  echo "  brew install cmake ninja pkgconf fmt cli11 tomlplusplus nlohmann-json xxhash sentencepiece abseil doctest libevent"
  exit 0
fi
if ! is_supported; then
  echo "dependencies: this is neither Debian 12+ nor Ubuntu 24.04+, nor derived from them, so nothing is installed. Eddy"
  echo "needs what these Debian packages hold: ${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "dependencies: all ${#packages[@]} packages are installed"
  exit 0
fi

echo "dependencies: missing: ${missing[*]}"
as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "dependencies: not root and no sudo, so nothing is installed. Ask for: apt-get install ${missing[*]}"
    exit 0
  fi
  as_root=(sudo "${as_root[@]}")
fi
# Short waits: a machine without a network is told so at once. It may have the same libraries by other ways than packages,
# so the build goes on and says what it does not find.
apt_get=("${as_root[@]}" apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
timeout 120 "${apt_get[@]}" update || echo "dependencies: the package lists could not be renewed; trying with the old ones"
"${apt_get[@]}" install --yes --no-install-recommends ${missing[@]+"${missing[@]}"} ||
  echo "dependencies: apt-get could not install: ${missing[*]}. Going on without; the build says what it does not find" >&2
