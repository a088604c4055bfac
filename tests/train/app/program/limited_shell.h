// The program by a line of the shell, which sets limits and closes streams.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/files/text_file.h"
#include "train/text/stories/stories.h"

namespace eddy::test {

// Runs a line of the shell in a folder, where $EDDY is the program. The system ends one that computes without an end.
inline Ended shell(const TempFolder& folder, const std::string& line) {
  const std::string script = "cd '" + folder.path() +
                             "' && unset OPENBLAS_NUM_THREADS && export EDDY_NUM_THREADS=2 HOME=\"$PWD\" && "
                             "ulimit -t 60 && EDDY='" +
                             kProgram + "' && { " + line + "; } >out 2>err </dev/null";
  const int status = std::system(script.c_str());
  Ended ended;
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  for (const auto& [name, text] : {std::pair("out", &ended.out), std::pair("err", &ended.err)})
    if (std::filesystem::exists(folder.path(name))) *text = training::read_text_file(folder.path(name));
  return ended;
}

inline const std::string kTrain = "$EDDY train --data text.txt " + kTinyModel + "--train.steps 2 ";

inline void write_text(const TempFolder& folder) {
  folder.write("text.txt", training::generate_stories(3, 4000));
}

}  // namespace eddy::test
