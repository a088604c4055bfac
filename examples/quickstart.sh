#!/usr/bin/env bash
# From a fresh clone to a trained model in some minutes: installs what is missing, builds Eddy, trains for two minutes what
# `eddy train` chooses for the text, and says where the report of the run lies.
#
#   examples/quickstart.sh                          tiny Shakespeare, or Eddy's own stories without a network
#   examples/quickstart.sh --data my_texts/         your own file or folder (the same as --data.path)
#   examples/quickstart.sh --data enwik8            a public data set, fetched once (`eddy tasks` lists them)
#   examples/quickstart.sh --train.minutes 10       any further option goes to `eddy train`
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
started=$SECONDS
heading() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

# Names without a dot are this script's short forms; everything else is passed on as it is.
run="$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)"
options=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --data | --out)
      if (($# < 2)); then
        echo "quickstart: $1 needs a path" >&2
        exit 2
      fi
      if [[ "$1" == --data ]]; then options+=(--data.path "$2"); else run="$2"; fi
      shift 2
      ;;
    --data=*) options+=(--data.path "${1#*=}") && shift ;;
    --out=*) run="${1#*=}" && shift ;;
    *) options+=("$1") && shift ;;
  esac
done

# A path that is not there is said before the build. A name without a slash may be that of a data set.
for ((i = 0; i + 1 < ${#options[@]}; ++i)); do
  if [[ "${options[i]}" == --data.path && "${options[i + 1]}" == */* && ! -e "${options[i + 1]}" ]]; then
    echo "quickstart: there is no ${options[i + 1]} (a file or a folder of texts; taken from the working directory)" >&2
    exit 2
  fi
done

# The script's own limit stands only where the user gives none.
if [[ ! " ${options[*]-} " =~ [[:space:]]--train\.minutes[=[:space:]] ]]; then
  options=(--train.minutes 2 ${options[@]+"${options[@]}"})
fi

heading "Dependencies"
"$root/cmake/install_dependencies.sh"

heading "Build"
(
  cd "$root" # presets are looked up in the working directory
  cmake --preset release
  cmake --build --preset release --target eddy_program
)

# bf16 where this machine's products are faster in it, unless the user chose.
if [[ ! " ${options[*]-} " =~ [[:space:]]--train\.(precision|device)[=[:space:]] ]]; then
  heading "Precision"
  choice="$("$root/build/release/eddy" info --measure | grep '^precision here:')"
  echo "$choice"
  read -r _ _ precision _ <<<"$choice"
  options=(--train.precision "$precision" ${options[@]+"${options[@]}"})
fi

heading "Training into $run"
"$root/build/release/eddy" train --out "$run" ${options[@]+"${options[@]}"}

heading "Done"
echo "Report: $run/report.html (open it in a browser)"
eddy="$root/build/release/eddy"
cat <<END
From here:
  $eddy generate $run --prompt "Once "                           # let it write
  $eddy train --resume $run --train.minutes 10                   # train it longer
  $eddy train --init-from $run --data my_texts/ --run runs/mine  # go on from its weights with your own texts
  $eddy learn                                                    # exercises that check themselves
  $eddy tasks                                                    # what else to train on, public data sets too
  $eddy plan --help                                              # memory and time of a run before it begins
  $eddy train --help
END
