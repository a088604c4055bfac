// x86-64 has a line "model name", ARM64 "CPU implementer" and "CPU part" (MIDR_EL1). Source of the numbers: Linux,
// arch/arm64/include/asm/cputype.h, and the technical reference manuals of the cores.
#include "tensor/system/cpuinfo.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "tensor/base/format.h"

namespace eddy {
namespace {

struct ArmPart {
  long maker, part;
  const char* name;
};

constexpr ArmPart kArmParts[] = {
    {0x41, 0xd03, "Arm Cortex-A53"},
    {0x41, 0xd04, "Arm Cortex-A35"},
    {0x41, 0xd05, "Arm Cortex-A55"},
    {0x41, 0xd07, "Arm Cortex-A57"},
    {0x41, 0xd08, "Arm Cortex-A72"},
    {0x41, 0xd09, "Arm Cortex-A73"},
    {0x41, 0xd0a, "Arm Cortex-A75"},
    {0x41, 0xd0b, "Arm Cortex-A76"},
    {0x41, 0xd0c, "Arm Neoverse-N1"},
    {0x41, 0xd0d, "Arm Cortex-A77"},
    {0x41, 0xd40, "Arm Neoverse-V1"},
    {0x41, 0xd41, "Arm Cortex-A78"},
    {0x41, 0xd44, "Arm Cortex-X1"},
    {0x41, 0xd46, "Arm Cortex-A510"},
    {0x41, 0xd47, "Arm Cortex-A710"},
    {0x41, 0xd48, "Arm Cortex-X2"},
    {0x41, 0xd49, "Arm Neoverse-N2"},
    {0x41, 0xd4b, "Arm Cortex-A78C"},
    {0x41, 0xd4c, "Arm Cortex-X1C"},
    {0x41, 0xd4d, "Arm Cortex-A715"},
    {0x41, 0xd4e, "Arm Cortex-X3"},
    {0x41, 0xd4f, "Arm Neoverse-V2"},
    {0x41, 0xd80, "Arm Cortex-A520"},
    {0x41, 0xd81, "Arm Cortex-A720"},
    {0x41, 0xd82, "Arm Cortex-X4"},
    {0x41, 0xd84, "Arm Neoverse-V3"},
    {0x41, 0xd85, "Arm Cortex-X925"},
    {0x41, 0xd87, "Arm Cortex-A725"},
    {0x41, 0xd8e, "Arm Neoverse-N3"},
    {0x46, 0x001, "Fujitsu A64FX"},
    {0x48, 0xd01, "HiSilicon TSV110"},
    {0x51, 0x001, "Qualcomm Oryon"},
    {0x61, 0x022, "Apple M1"},
    {0x61, 0x023, "Apple M1"},
    {0x61, 0x024, "Apple M1 Pro"},
    {0x61, 0x025, "Apple M1 Pro"},
    {0x61, 0x028, "Apple M1 Max"},
    {0x61, 0x029, "Apple M1 Max"},
    {0x61, 0x032, "Apple M2"},
    {0x61, 0x033, "Apple M2"},
    {0x61, 0x034, "Apple M2 Pro"},
    {0x61, 0x035, "Apple M2 Pro"},
    {0x61, 0x038, "Apple M2 Max"},
    {0x61, 0x039, "Apple M2 Max"},
    {0x6d, 0xd49, "Microsoft Azure Cobalt 100"},
    {0xc0, 0xac3, "Ampere AmpereOne"},
    {0xc0, 0xac4, "Ampere AmpereOne"},
};

std::string name_of_part(long maker, long part) {
  for (const ArmPart& known : kArmParts)
    if (known.maker == maker && known.part == part) return known.name;
  return fmt::format("ARM implementer {:#04x} part {:#05x}", maker, part);
}

}  // namespace

std::string processor_name_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> cores;
  long maker = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) continue;
    const std::string value = line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) maker = std::strtol(value.c_str(), nullptr, 0);
    if (!line.starts_with("CPU part")) continue;
    const std::string name = name_of_part(maker, std::strtol(value.c_str(), nullptr, 0));
    if (std::find(cores.begin(), cores.end(), name) == cores.end()) cores.push_back(name);
  }
  std::string names;
  for (const std::string& core : cores) names += (names.empty() ? "" : " and ") + core;
  return names.empty() ? "unknown" : names;
}

}  // namespace eddy
