// On which systems cmake/install_dependencies.sh asks for packages. It runs with a description of a system in place of
// /etc/os-release, and with programs that only say how they were called, so nothing is installed.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"

namespace {

using namespace eddy::test;

// What the script prints on a system of this description where no package is installed.
std::string installing_on(const std::string& system) {
  const TempFolder folder;
  const std::string release = folder.write("os-release", system);
  for (const char* const name : {"apt-get", "sudo", "dpkg-query"}) {
    const std::string program = folder.write(
        std::string("bin/") + name,
        name == std::string("dpkg-query") ? "#!/bin/sh\nexit 1\n" : "#!/bin/sh\necho called \"$@\"\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  std::string script = read_bytes(EDDY_SOURCE_DIR "/cmake/install_dependencies.sh");
  const std::string known = "/etc/os-release";
  for (std::size_t at = 0; (at = script.find(known, at)) != std::string::npos; at += release.size())
    script.replace(at, known.size(), release);
  const std::string path = folder.write("script.sh", script);
  return output_of("env -u EDDY_NO_INSTALL PATH=" + folder.path("bin") + ":\"$PATH\" bash " + path);
}

void check_installs(const std::string& system, bool expected) {
  const std::string text = installing_on(system);
  CHECK_MESSAGE(contains(text, "called") == expected, system, text);
  CHECK_MESSAGE(contains(text, "nothing is installed") != expected, system, text);
}

}  // namespace

TEST_CASE("install dependencies: systems derived from Debian 12 or Ubuntu 24.04 and later are known") {
  if (output_of("bash --version").empty()) return;
  for (
      const char* const system : {
          "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"22.1\"\nVERSION_CODENAME=xia\nUBUNTU_CODENAME=noble\n",
          "ID=linuxmint\nID_LIKE=debian\nVERSION_ID=\"6\"\nVERSION_CODENAME=faye\nDEBIAN_CODENAME=bookworm\n",
          "ID=pop\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n",
          "ID=kali\nID_LIKE=debian\nVERSION_ID=\"2025.1\"\nVERSION_CODENAME=kali-rolling\n",
          "ID=raspbian\nID_LIKE=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n",
          "ID=zorin\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"18\"\nUBUNTU_CODENAME=noble\n",
          "ID=debian\nVERSION_CODENAME=forky\n",
      })
    check_installs(system, true);
}

TEST_CASE("install dependencies: systems with older packages or others are left as they are") {
  if (output_of("bash --version").empty()) return;
  for (
      const char* const system : {
          "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"21.3\"\nVERSION_CODENAME=virginia\nUBUNTU_CODENAME=jammy\n",
          "ID=linuxmint\nID_LIKE=debian\nVERSION_ID=\"5\"\nVERSION_CODENAME=elsie\nDEBIAN_CODENAME=bullseye\n",
          "ID=raspbian\nID_LIKE=debian\nVERSION_ID=\"11\"\nVERSION_CODENAME=bullseye\n",
          "ID=fedora\nVERSION_ID=41\n",
          "ID=endeavouros\nID_LIKE=arch\n",
          "NAME=nothing\n",
      })
    check_installs(system, false);
}

TEST_CASE("install dependencies: Debian and Ubuntu are known by their versions") {
  if (output_of("bash --version").empty() || output_of("dpkg --version").empty()) return;
  check_installs("ID=debian\nVERSION_ID=\"12\"\n", true);
  check_installs("ID=debian\nVERSION_ID=\"11\"\n", false);
  check_installs("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n", true);
  check_installs("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"22.04\"\n", false);
}
