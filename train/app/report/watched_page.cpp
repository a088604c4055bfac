// Opens the report of a run, or makes the page of several.
#include "train/app/report/watched_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/system/files.h"
#include "train/app/report/curves.h"
#include "train/app/report/side_by_side.h"
#include "train/files/output_file.h"
#include "train/run/run_folder.h"
#include "train/step/clock.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// The report of a run as it is now; none where there is none. Only a regular file that is a page of Eddy's is read,
// whatever stands under its name. A newer page takes its name and leaves this one as it is.
Descriptor open_report(const fs::path& path) {
  constexpr off_t kMostBytes = off_t{1} << 26;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > kMostBytes)
    return Descriptor();
  char begin[1024];
  const ssize_t got = ::pread(file.get(), begin, sizeof begin, 0);
  if (got <= 0 || !is_page_text({begin, static_cast<std::size_t>(got)})) return Descriptor();
  return file;
}

// A file without a name, with this text.
// errors: IoError.
Descriptor file_of(const std::string& text) {
  Descriptor file(unnamed_file("page"));
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t now = ::write(file.get(), text.data() + done, text.size() - done);
    if (now <= 0) fail<IoError>("watch: the page cannot be kept: {}", std::generic_category().message(errno));
    done += static_cast<std::size_t>(now);
  }
  return file;
}

std::string page_of_runs(const std::vector<std::string>& folders, double every_s) {
  const std::vector<ReportedRun> runs = read_reported_runs(folders);
  const std::chrono::duration<double> written = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t count = std::ssize(runs);
  return side_by_side_page(
      runs, groups_of(runs),
      PageStatus{"watched", fmt::format("{} {}", count, plural(count, "run")), {}, written.count(), every_s});
}

}  // namespace

Descriptor WatchedPage::open() {
  if (Descriptor report = open_report(folder_ / "report.html"); report.get() >= 0) return report;
  const auto now = [] { return seconds_between(Clock::time_point{}); };
  if (const double began = now(); timer_.is_due(began)) {
    constexpr double kLeastEvery = 10;  // seconds until whoever looks loads it again
    made_.reset();
    std::exception_ptr refused;
    try {
      Descriptor made =
          file_of(page_of_runs(runs_in(folder_.string(), "watch"), std::max(kLeastEvery, timer_.interval())));
      made_.reset(made.release());
    } catch (...) {
      refused = std::current_exception();
    }
    timer_.note(began, now());
    if (refused) std::rethrow_exception(refused);
  }
  return Descriptor(::fcntl(made_.get(), F_DUPFD_CLOEXEC, 0));
}

void require_watchable(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    static_cast<void>(find_checkpoint(folder.string(), "latest"));  // says so
  if (fs::exists(folder / "report.html", error) || is_run_folder(folder)) return;
  static_cast<void>(runs_in(folder.string(), "watch"));
}

}  // namespace eddy::app
