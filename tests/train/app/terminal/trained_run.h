// A small run for tests of `eddy chat`.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/text/stories/stories.h"

namespace eddy::test {

using namespace training;

// A small run, trained once.
struct Trained {
  TempFolder folder;
  Trained() {
    folder.write("book.txt", generate_stories(1, 20000));
    const Ended made =
        run_program({words_of("train --run run --data book.txt --model.dim 16 --model.heads 2 "
                              "--model.layers 1 --model.context 32 --train.steps 3 --train.batch 2 "
                              "--train.eval_every 0 --train.sample_tokens 0 --train.threads 1"),
                     folder.path()});
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }
  // What a chat writes that reads these lines from a file.
  Ended lines(const std::string& text, const std::string& flags = "--tokens 12") const {
    const std::string file = folder.write("lines.txt", text);
    return run_program({words_of("chat run " + flags), folder.path(), file});
  }
};
inline const Trained& trained() {
  static const Trained once;
  return once;
}

}  // namespace eddy::test
