// The student's folder: the files to complete, and what is known of them in progress.json.
// A file that is there is never written again.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace eddy::app {

class StudentFolder {
 public:
  // Opens a folder; one that is missing or empty is new.
  // errors: IoError for a folder with other files, and one that cannot be read; FormatError for a damaged
  // progress.json.
  explicit StudentFolder(const std::filesystem::path& folder);

  // Whether a folder is one already.
  static bool is_one(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  // Where the file of an exercise is or will be.
  std::filesystem::path file(const std::string& name) const { return folder_ / name; }
  // Copies an exercise into the folder, made if it is missing, unless it is there. Returns whether it was copied.
  // errors: IoError.
  bool take(const std::filesystem::path& exercise);

  bool is_right(const std::string& name) const { return right_.contains(name); }
  // Notes how a check of an exercise ended. What was right stays so.
  // errors: IoError.
  void note_right(const std::string& name);
  // Counts a hint of an exercise that has `hints`. Returns how many were given, with this one.
  // errors: IoError.
  int next_hint(const std::string& name, int hints);

 private:
  void save() const;

  std::filesystem::path folder_;
  std::set<std::string> right_;
  std::map<std::string, int> hints_;
};

}  // namespace eddy::app
