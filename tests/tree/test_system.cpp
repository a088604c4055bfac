// What holds on one system alone: calls and headers of Linux stand in tensor/system/, each with a portable form, and
// scripts run by the bash and the tools of macOS.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy::test;

constexpr const char* kFolder = "tensor/system";

// Calls, constants, headers and files of Linux, and questions for the system. Comments are cut off before.
bool is_of_one_system(const std::string& line) {
  static const std::regex pattern(
      R"(\b(cpu_set_t|CPU_(ZERO|SET|AND|COUNT|ISSET)|(sched|pthread)_[gs]etaffinity(_np)?|MADV_HUGEPAGE|MAP_(POPULATE|HUGETLB)|)"
      R"(sig(timedwait|waitinfo)|signalfd|posix_fadvise|posix_fallocate|fallocate|renameat2|RENAME_EXCHANGE|memfd_create|)"
      R"(MFD_CLOEXEC|prctl|PR_SET_\w+|pipe2|dup3|accept4|SOCK_(CLOEXEC|NONBLOCK)|MSG_NOSIGNAL|inotify_\w+|epoll_\w+|eventfd|timerfd_\w+|)"
      R"(O_(PATH|TMPFILE)|sync_file_range|fdatasync|sendfile|copy_file_range|statx|mremap|getrandom|malloc_trim|)"
      R"(mallopt|execvpe|v?fork|syscall|SYS_\w+|gettid|getauxval|sysinfo|dl_iterate_phdr|st_[mca]tim|environ|)"
      R"(program_invocation(_short)?_name|secure_getenv|canonicalize_file_name|_SC_(AV)?PHYS_PAGES|_SC_NPROCESSORS_\w+|)"
      R"(__linux__|__APPLE__|__GLIBC__|__MACH__)\b|"/(proc|sys)/|\.preinit_array|__attribute__\(\(weak|)"
      R"(#include <(link|sched|pty|elf|malloc|features|sys/(prctl|syscall|sysinfo|sendfile|epoll|inotify|eventfd|sysmacros))\.h>)");
  return std::regex_search(line.substr(0, line.find("//")), pattern);
}

// The scripts of the tree, those without an ending included.
std::vector<std::string> scripts() {
  std::vector<std::string> found{".ci/run"};
  for (const char* const top : {"cmake", "examples", "tests", "train"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(in_tree(top)))
      if (entry.path().extension() == ".sh" || entry.path().filename() == "completion.bash")
        found.push_back(fs::relative(entry.path(), EDDY_SOURCE_DIR).generic_string());
  std::erase_if(found, [](const std::string& file) { return !fs::exists(in_tree(file)); });
  std::sort(found.begin(), found.end());
  return found;
}

// A line of a script without its comment. A # behind a blank begins one, but not inside of quotes.
std::string without_comment(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0 && c == quote)
      quote = 0;
    else if (quote == 0 && (c == '\'' || c == '"') && (i == 0 || line[i - 1] != '\\'))
      quote = c;
    else if (quote == 0 && c == '#' && (i == 0 || line[i - 1] == ' '))
      return line.substr(0, i);
  }
  return line;
}

// What bash 3.2, of macOS, does not know in a line; "" without such.
std::string newer_than_bash_3(const std::string& line) {
  static const std::regex pattern(
      R"(\b(mapfile|readarray|coproc)\b|\b(declare|local|typeset) -[a-zA-Z]*[Agnlu]|\$\{\w+(\[[^\]]*\])?(\^|,|@[A-Za-z])|&>>|\|&|)"
      R"(;;?&|\bwait -n|\[\[ -v |shopt -s (globstar|lastpipe|inherit_errexit)|\$\{?(EPOCH\w+|BASHPID|SRANDOM)\b|)"
      R"(printf .*%\([^)]*\)T|\{\d+\.\.\d+\.\.|\$\{\w+: -\d+:? ?-?\d*\}|\$\{\w+\[-\d+\]|\bread [^;|]*-t ?0?\.\d)");
  std::smatch match;
  return std::regex_search(line, match, pattern) ? match.str() : "";
}

// What the tools of macOS do not know in a line; "" without such.
std::string newer_than_bsd(const std::string& line) {
  static const std::regex pattern(
      R"(\bsed (-[a-zA-Z]* )*-[a-zA-Z]*i\b|\bsed --|\btimeout |\bsetarch |\bxargs (-[^|]* )?(-d|-r|--)|\breadlink -f|)"
      R"(\bgrep (-\w+ )*-\w*P|\bsort (-\w+ )*-\w*V|\bstat -c|\bdate (-d|--)|\bdate \+\S*%N|\bmktemp --|\bnproc\b|\btac\b|)"
      R"(\bcp --|\bln -\w*r|\bfind .*-(printf|executable)|\bhead -[nc] -|\bsha256sum |\bnumfmt\b|[;{]p\}'|\bbase64 -w)");
  std::smatch match;
  return std::regex_search(line, match, pattern) ? match.str() : "";
}

// Scripts of Linux alone, with what they need of it.
const std::set<std::string> kOfLinux{
    "cmake/install_dependencies.sh",   // apt-get
    "tests/ports.sh",                  // debootstrap
    "tests/wheel.sh",                  // namespaces, and the libraries of a program of Linux
    "tests/parse.sh",                  // the headers of Debian
    "tests/distributed/two_hosts.sh",  // network namespaces
    "tests/distributed/kills.sh",      // /proc, which names the children of mpirun
    "tests/gpu/carry.sh",              // dpkg
    "tests/gpu/first_hour.sh",         // an NVIDIA GPU
    "tests/ptx/run.sh",                // nvcc
    "tests/ptx/fences.sh",
};

// The arrays of a script that may be empty, which bash before 4.4 takes for unset ones under `set -u`.
std::set<std::string> arrays_that_may_be_empty(const std::vector<std::string>& lines) {
  static const std::regex begins(R"((^|[\s;])(\w+)=\((\)|"?\$\{?@|\$))");
  std::set<std::string> names;
  for (const std::string& line : lines)
    for (std::sregex_iterator match(line.begin(), line.end(), begins), end; match != end; ++match)
      names.insert((*match)[2].str());
  return names;
}

// The first of those that a line expands without asking whether it is set; "" without one.
std::string expanded_unasked(std::string line, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const std::string plain = "${" + name + "[@]}", asked = "${" + name + "[@]+\"" + plain + "\"}";
    for (std::size_t at = 0; (at = line.find(asked)) != std::string::npos;) line.erase(at, asked.size());
    if (line.find(plain) != std::string::npos) return name;
  }
  return "";
}

}  // namespace

TEST_CASE("system: calls of one system alone stand in tensor/system") {
  for (const std::string& file :
       sources_below({"tensor", "autograd", "ops", "models", "train", "examples"})) {
    if (folder_of(file) == kFolder || file == "tensor/base/number_text.cpp") continue;
    const std::vector<std::string> lines = lines_of(file);
    for (std::size_t i = 0; i < lines.size(); ++i)
      CHECK_MESSAGE(!is_of_one_system(lines[i]), file << ":" << i + 1 << " has " << lines[i]);
  }
}

TEST_CASE("system: a call of Linux is seen and one of POSIX is not") {
  for (const char* const line : {"  cpu_set_t set;", "std::ifstream file(\"/proc/self/status\");",
                                 "#include <sys/prctl.h>", "#if defined(__linux__)", "::pipe2(ends, 0)",
                                 "memfd_create(name, 0)", "for (char** one = environ;;)"})
    CHECK_MESSAGE(is_of_one_system(line), line);
  for (const char* const line :
       {"  // as /proc/self/exe, or prctl", "own_environment()", "::open(path, O_RDONLY | O_CLOEXEC)",
        "environment()", "#include <sys/resource.h>", "start_child(become, &how, error)", "fork_at = 3;"})
    CHECK_MESSAGE(!is_of_one_system(line), line);
}

TEST_CASE("system: each form of Linux has a portable one beside it and a header above both") {
  int forms = 0;
  for (const std::string& file : sources_below({kFolder})) {
    const std::size_t linux = file.rfind("_linux.cpp"), portable = file.rfind("_portable.cpp");
    if (linux == std::string::npos && portable == std::string::npos) continue;
    const std::string stem = file.substr(0, std::min(linux, portable));
    if (stem == std::string(kFolder) + "/memory_limit") continue;  // which other systems do without
    ++forms;
    for (const char* const ending : {"_linux.cpp", "_portable.cpp", ".h"})
      CHECK_MESSAGE(fs::exists(in_tree(stem + ending)), stem << ending << " is missing");
  }
  CHECK(forms >= 10);
}

TEST_CASE("scripts: bash 3.2 knows all that they hold") {
  CHECK(scripts().size() > 15);
  for (const std::string& file : scripts()) {
    const std::vector<std::string> lines = lines_of(file);
    const std::set<std::string> arrays = arrays_that_may_be_empty(lines);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string line = without_comment(lines[i]), newer = newer_than_bash_3(line),
                        empty = expanded_unasked(line, arrays);
      CHECK_MESSAGE(newer.empty(), file << ":" << i + 1 << ": bash 3.2 does not know " << newer);
      CHECK_MESSAGE(empty.empty(), file << ":" << i + 1 << ": " << empty << " may be empty: ${" << empty
                                        << "[@]+\"${" << empty << "[@]}\"}");
    }
  }
}

TEST_CASE("scripts: the tools of macOS do what they ask for") {
  for (const std::string& file : kOfLinux) CHECK_MESSAGE(fs::exists(in_tree(file)), file);
  for (const std::string& file : scripts()) {
    if (kOfLinux.contains(file)) continue;
    const std::vector<std::string> lines = lines_of(file);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string line = without_comment(lines[i]);
      // Where a tool is looked for first, there is another way.
      if (line.find("command -v") != std::string::npos || line.find("2>/dev/null; then") != std::string::npos)
        continue;
      const std::string newer = newer_than_bsd(line);
      CHECK_MESSAGE(newer.empty(), file << ":" << i + 1 << ": macOS does not know " << newer);
    }
  }
}

TEST_CASE("scripts: what is newer is seen and what is old is not") {
  for (const char* const line : {"mapfile -t lines", "declare -A map", "echo ${name^^}", "echo ${name,,}",
                                 "make |& tee log", "local -n other=$1", "[[ -v name ]]", "printf '%(%s)T'",
                                 "for i in {1..9..2}; do", "shopt -s globstar", "make &>>log"})
    CHECK_MESSAGE(!newer_than_bash_3(line).empty(), line);
  for (const char* const line : {"echo ${name%,*}", "echo \"${name#^}\"", "local name=$1", "a && b | c",
                                 "echo ${a[@]}", "declare -r x=1", "case $x in a) b ;; esac"})
    CHECK_MESSAGE(newer_than_bash_3(line).empty(), line);
  for (const char* const line :
       {"sed -i s/a/b/ file", "sed -E -i s/a/b/ file", "timeout 3 make", "xargs -d '\\n' echo",
        "sed -n '2,/^set /{/^set /d;p}'", "date +%s%N", "readlink -f ."})
    CHECK_MESSAGE(!newer_than_bsd(line).empty(), line);
  for (const char* const line : {"sed -n 's/a-i/b/p'", "the_timeout=3", "xargs -0 echo", "date +%Y%m%d",
                                 "sed -n '/a/{/b/d;p;}'", "mktemp -d"})
    CHECK_MESSAGE(newer_than_bsd(line).empty(), line);
  const std::set<std::string> empty =
      arrays_that_may_be_empty({"a=()", "local b=() c=(x)", "d=(\"${@:3}\")", "e=(\"$f\")"});
  CHECK(empty == std::set<std::string>{"a", "b", "d"});
  CHECK(expanded_unasked("make \"${a[@]}\"", empty) == "a");
  CHECK(expanded_unasked("make ${a[@]+\"${a[@]}\"}", empty).empty());
  CHECK(without_comment("a=1 # timeout 3") == "a=1 ");
  CHECK(without_comment("echo '# no' ${#a[@]}") == "echo '# no' ${#a[@]}");
}
