// The program `eddy`: the commands of the library, and nothing else.
#include "train/program/program.h"

int main(int argc, char** argv) {
  return eddy::program(argc, argv);
}
