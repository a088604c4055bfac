// What a file like /proc/cpuinfo says the processor is.
#include "tensor/system/cpuinfo.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/files.h"

using namespace eddy::test;
using eddy::processor_name_in;

namespace {

std::string name_in(const std::string& text) {
  const TempFolder folder;
  folder.write("cpuinfo", text);
  return processor_name_in(folder.path("cpuinfo"));
}

std::string core(const char* maker, const char* part) {
  return std::string("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: ") + maker +
         "\nCPU architecture: 8\nCPU part\t: " + part + "\nCPU revision\t: 1\n\n";
}

}  // namespace

TEST_CASE("processor name: x86-64 says it in words") {
  CHECK(name_in("processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz \nflags\t\t: fpu\n") ==
        "Some CPU @ 2.00GHz");
}

TEST_CASE("processor name: the numbers of ARM64 become names, each once") {
  CHECK(name_in(core("0x41", "0xd08") + core("0x41", "0xd08")) == "Arm Cortex-A72");
  CHECK(name_in(core("0x41", "0xd05") + core("0x41", "0xd0b") + core("0x41", "0xd05")) ==
        "Arm Cortex-A55 and Arm Cortex-A76");
  CHECK(name_in(core("0x61", "0x022") + core("0x61", "0x023")) == "Apple M1");
}

TEST_CASE("processor name: a core that is not known keeps its numbers, and nothing is unknown") {
  CHECK(name_in(core("0x41", "0xfff")) == "ARM implementer 0x41 part 0xfff");
  CHECK(name_in("") == "unknown");
  CHECK(name_in("model name\nCPU part\t:\n") == "unknown");
  CHECK(processor_name_in("no such file") == "unknown");
}
