// The program `eddy`: the commands of the library, and nothing else.
#include "train/app/program/program.h"

int main(int argc, char** argv) {
  return eddy::app::program(argc, argv);
}
