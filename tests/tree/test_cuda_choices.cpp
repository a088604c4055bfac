// What a CUDA build is made for (cmake/CudaChoices.cmake): its functions run by themselves, with programs that answer
// in the place of nvcc and nvidia-smi.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"

namespace {

using namespace eddy::test;

// A machine with a toolkit, and with GPUs or without.
struct CudaMachine {
  std::string version = "13.0", known = "75 80 86 87 89 90 100 103 120 121";
  std::string smi{};             // what its nvidia-smi does, as lines of a shell; empty: there is none
  std::string accepts = "nvcc";  // what nvcc compiles with: "nvcc" by itself, or the last part of a path
  std::string host{}, wanted{},
      flags{};  // CMAKE_CUDA_HOST_COMPILER, EDDY_CUDA_ARCHITECTURES, CMAKE_CUDA_FLAGS
};

// Writes a program, and returns its path.
std::string program(const TempFolder& folder, const std::string& name, const std::string& lines) {
  std::string path = folder.write("bin/" + name, "#!/bin/sh\n" + lines);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

// They answer by variables: those of a machine.
constexpr const char* kNvcc = R"(
case "$*" in
  --version) echo "Cuda compilation tools, release $VERSION, V0" ;;
  --list-gpu-code) for a in $KNOWN; do echo sm_$a; done ;;
  *-allow-unsupported-compiler*) ;;
  *-ccbin*"/$ACCEPTS "* | *-ccbin" $ACCEPTS "*) ;;
  *-ccbin*) echo 'error: no' >&2; exit 1 ;;
  *) [ "$ACCEPTS" = nvcc ] || { echo 'x.h:3: #error -- unsupported GNU version!'; exit 1; } ;;
esac
)";
constexpr const char* kScript = R"(
cmake_minimum_required(VERSION 3.25)
include("${SOURCE}/cmake/CudaChoices.cmake")
set(CMAKE_CXX_COMPILER /usr/bin/c++)
eddy_cuda_architectures(nvcc "$ENV{WANTED}" list)
message(STATUS "builds ${list}")
eddy_cuda_host_compiler(nvcc "$ENV{HOST}" host)
message(STATUS "host ${host}.")
)";

// What CMake says there on one line: its messages, then "builds LIST" and "host COMPILER".
std::string configured(const CudaMachine& machine) {
  const TempFolder folder;
  program(folder, "nvcc", kNvcc);
  for (const char* const host : {"g++", "g++-13"}) program(folder, host, "exit 0\n");
  const std::string smi = machine.smi.empty() ? "/nowhere/nvidia-smi" : program(folder, "smi", machine.smi);
  const auto variable = [](const char* name, const std::string& value) {
    return std::string(name) + "='" + value + "' ";
  };
  std::string text = output_of("cd " + folder.path() + " && env PATH=" + folder.path("bin") + ":\"$PATH\" " +
                               variable("VERSION", machine.version) + variable("KNOWN", machine.known) +
                               variable("ACCEPTS", machine.accepts) + variable("HOST", machine.host) +
                               variable("WANTED", machine.wanted) + variable("CUDAFLAGS", machine.flags) +
                               "cmake -DEDDY_NVIDIA_SMI=" + smi + " -DSOURCE=" EDDY_SOURCE_DIR " -P " +
                               folder.write("script.cmake", kScript) + " 2>&1; true");
  // CMake breaks the lines of its errors.
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (std::size_t at = 0; (at = text.find("  ", at)) != std::string::npos;) text.erase(at, 1);
  return text;
}

void check_says(const CudaMachine& machine, const std::string& expected) {
  const std::string text = configured(machine);
  CHECK_MESSAGE(contains(text, expected), expected, "\n", text);
}

bool has_cmake() {
  return !output_of("cmake --version").empty();
}

const std::string kTwelveFour = "50 75 80 86 87 89 90";

}  // namespace

TEST_CASE("cuda choices: a build is for the GPUs that are here, each once, with PTX of the newest") {
  if (!has_cmake()) return;
  check_says({.smi = "echo 8.9"}, "builds 89 ");
  check_says({.smi = "echo 8.9"}, "nvcc 13.0 builds for the GPU here, of 8.9; and PTX of 8.9");
  check_says({.smi = "echo 12.0; echo 8.6; echo 12.0"}, "builds 86-real;120 ");
  check_says({.smi = "case \"$*\" in *compute_cap*) echo 9.0 ;; esac"}, "builds 90 ");
}

TEST_CASE(
    "cuda choices: without a GPU a build is for packages, as far as nvcc knows their architectures, and says why") {
  if (!has_cmake()) return;
  const std::string all = "builds 80-real;86-real;89-real;90-real;100-real;120 ";
  check_says({}, all);
  check_says({}, "without one the build is for packages");
  check_says({.smi = "echo 'NVIDIA-SMI has failed'; exit 9"}, all);
  check_says({.smi = "echo 'NVIDIA-SMI has failed'; exit 9"},
             "nvidia-smi shows no GPU: NVIDIA-SMI has failed;");
  check_says({.smi = "echo 'No devices were found'"}, all);
  check_says({.smi = "echo 8.9", .wanted = "packages"}, all);
  check_says({.version = "12.4", .known = kTwelveFour}, "builds 80-real;86-real;89-real;90 ");
  check_says({.version = "12.4", .known = kTwelveFour}, "it does not know 10.0, 12.0");
}

TEST_CASE("cuda choices: a GPU that nvcc does not know gets the PTX of the newest before it, which is said") {
  if (!has_cmake()) return;
  const CudaMachine blackwell{.version = "12.4", .known = kTwelveFour, .smi = "echo 12.0"};
  check_says(blackwell, "builds 90 ");
  check_says(blackwell, "it does not know 12.0, for which the driver compiles the PTX of 9.0");
}

TEST_CASE("cuda choices: a list is taken as it is, and refused where nvcc does not know it") {
  if (!has_cmake()) return;
  check_says({.smi = "echo 8.9", .wanted = "90a-real;120"}, "builds 90a-real;120 ");
  check_says({.version = "12.4", .known = kTwelveFour, .wanted = "90;120"},
             "nvcc 12.4 does not know 120 (it knows 50,");
  check_says({.wanted = "native"}, "'native' is no architecture");
}

TEST_CASE("cuda choices: what is below 8.0 is refused, and left out beside another GPU") {
  if (!has_cmake()) return;
  check_says({.smi = "echo 7.5"},
             "The GPU here has compute capability 7.5, and Eddy's kernels need compute capability 8.0");
  check_says({.wanted = "75"}, "75 is too old: Eddy's kernels need compute capability 8.0");
  check_says({.smi = "echo 7.5; echo 8.6"}, "not for the GPU here of 7.5");
  check_says({.smi = "echo 7.5; echo 8.6"}, "builds 86 ");
  check_says({.version = "12.3"}, "is of CUDA 12.3, and Eddy needs 12.4 or later");
}

TEST_CASE("cuda choices: where nvcc refuses its own host compiler another is taken, which is said") {
  if (!has_cmake()) return;
  check_says({.smi = "echo 8.9"}, "host . ");
  const CudaMachine debian{.smi = "echo 8.9", .accepts = "g++-13"};
  check_says(debian, "bin/g++-13. ");
  check_says(
      debian,
      "bin/g++-13 compiles the host's code in .cu files; nvcc refuses g++: x.h:3: #error -- unsupported GNU");
  check_says({.accepts = "none"},
             "nvcc accepts none of the compilers here for the host's code: not g++: x.h:3: #error");
  check_says({.accepts = "none", .flags = "-allow-unsupported-compiler"}, "host . ");
  check_says({.accepts = "g++-13", .host = "g++-14"}, "not g++-14: error: no");
  check_says({.accepts = "g++-13", .host = "g++-13"}, "host g++-13. ");
}
