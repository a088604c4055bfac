// Which program does it, with which arguments, and what its exit status means.
#include "train/fetch/download.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "tensor/base/format.h"
#include "train/process/running_program.h"

namespace eddy::training {
namespace {

using Words = std::vector<std::string>;

// The exit statuses that a user meets; the manual page of each program lists the rest.
const std::map<int, const char*> kCurlReasons{{5, "the server's name could not be resolved (offline?)"},
                                              {6, "the server's name could not be resolved (offline?)"},
                                              {7, "no connection to the server (offline?)"},
                                              {18, "it was cut off before its end"},
                                              {22, "the server does not have the file"},
                                              {23, "the file could not be written"},
                                              {28, "it took too long"},
                                              {35, "no secure connection to the server"},
                                              {37, "the file could not be read"},
                                              {52, "the server sent nothing"},
                                              {56, "the connection broke off"},
                                              {60, "the server's certificate could not be verified"}};
const std::map<int, const char*> kWgetReasons{{3, "the file could not be written"},
                                              {4, "no connection to the server, or it broke off (offline?)"},
                                              {5, "the server's certificate could not be verified"},
                                              {8, "the server does not have the file"}};

std::string reason(const ProgramEnd& end, const char* program, const std::map<int, const char*>& reasons) {
  const auto known = reasons.find(end.status);
  return known != reasons.end() ? known->second : end.why(program);
}

}  // namespace

std::string download(const std::string& url, const std::string& path) {
  const bool shows = ::isatty(STDERR_FILENO) == 1;
  // A connection over which nothing comes for half a minute is given up.
  const auto fetch = [&](Words words) {
    return run_to_end({.words = std::move(words), .output = kRead, .errors = shows ? kShared : kNowhere});
  };
  const auto by_curl = [&] {
    return fetch({"curl", shows ? "--progress-bar" : "--silent", "--fail", "--location", "--connect-timeout",
                  "15", "--speed-limit", "1", "--speed-time", "30", "--continue-at", "-", "--write-out",
                  "%{http_code}", "--output", path, "--", url});
  };
  ProgramEnd curl = by_curl();
  // The server sends no part of a file, or has none behind what is there: begin anew. (wget does so by itself.)
  std::error_code error;
  if ((curl.status == 33 || (curl.status == 22 && curl.output == "416")) &&
      std::filesystem::remove(path, error))
    curl = by_curl();
  if (curl.found()) return reason(curl, "curl", kCurlReasons);
  const ProgramEnd wget = fetch({"wget", "--quiet", shows ? "--show-progress" : "--no-verbose", "--tries=1",
                                 "--timeout=30", "--continue", "--output-document=" + path, "--", url});
  if (wget.found()) return reason(wget, "wget", kWgetReasons);
  return "neither curl nor wget is installed";
}

std::string fetch_with_curl(const std::string& url, const std::string& path) {
  const ProgramEnd end =
      run_to_end({.words = {"curl", "--silent", "--fail", "--location", "--connect-timeout", "3",
                            "--max-time", "20", "--output", path, "--", url}});
  return reason(end, "curl", kCurlReasons);
}

std::string unpack(Packing packing, const std::string& archive, const std::vector<std::string>& members,
                   const std::string& folder) {
  std::vector<Words> ways;
  if (packing == Packing::tar_gz) {
    ways = {{"tar", "-xzf", archive, "-C", folder, "--no-same-owner", "--"}};
  } else {
    ways = {{"unzip", "-q", "-o", archive}, {"bsdtar", "-xf", archive, "-C", folder, "--"}};
  }
  for (Words& words : ways) words.insert(words.end(), members.begin(), members.end());
  if (packing == Packing::zip) {
    ways.front().insert(ways.front().end(), {"-d", folder});
    ways.push_back({"python3", "-m", "zipfile", "-e", archive, folder});
  }
  std::string missing;
  for (const Words& words : ways) {
    const ProgramEnd end = run_to_end({.words = words});
    if (end.found()) return reason(end, words.front().c_str(), {});
    missing += (missing.empty() ? "" : ", ") + words.front();
  }
  return fmt::format("nothing is installed that unpacks it ({})", missing);
}

}  // namespace eddy::training
