// Public data sets by name: `--data enwik8`. Each is fetched once from its origin into the user's cache, checked, and
// from then on read from there.
//
//   CACHE/enwik8/enwik8        the files of a set
//   CACHE/enwik8/digests       what they were when they came: one line a file, "SHA-256  bytes  name"
//   CACHE/enwik8/*.part        a download in progress, or what came of one that was cut off: the next one goes on
//
// CACHE is EDDY_CACHE_DIR, else eddy in XDG_CACHE_HOME, else ~/.cache/eddy. A set that lies complete in a folder of its
// name in EDDY_DATA_DIR is read there. A file or an archive that the user puts into the cache by hand is taken as if it
// had been fetched.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/fetch/download.h"

namespace eddy::training {

// A file that stays, below the folder of its set.
struct DataFile {
  std::string name;
  std::string digest;  // "sha256:..." or "md5:...", where its publisher gives one
};

// A file to fetch: one that stays, or an archive of some.
struct DataOrigin {
  std::string url;
  std::string file;        // its name below the folder
  std::string digest;      // of what is fetched; as above
  std::int64_t bytes = 0;  // about, for people
  Packing packing = Packing::none;
  std::vector<DataFile> members{};  // of an archive
};

// Which tasks read a set is said beside the task (TaskEntry::data_sets).
struct DataSet {
  std::string name, summary;
  std::string folder;  // in the cache
  std::vector<DataOrigin> origins;
  std::string path;      // what the task reads, below the folder; empty: the folder
  bool stories = false;  // a file of it holds many short texts, which are read one by one
  // Configuration keys that suit the data, for a new run that does not give them.
  std::vector<std::pair<std::string, std::string>> keys{};
};

// All data sets that have a name.
std::span<const DataSet> data_sets();

// The data set that a path of data names; null for any other path, and where a file or folder of that name is there.
const DataSet* data_set_named(const std::string& path);

// Where data sets lie. `standard` fills it from the environment; tests fill it by hand.
struct DataPlaces {
  std::string data_dir;  // EDDY_DATA_DIR, empty when unset
  std::string cache;     // empty when there is none
  std::function<std::string(const std::string& url, const std::string& path)> fetch = download;

  static DataPlaces standard();
};

// The path of a data set's files, which are fetched now if they are not there. `messages` gets a line about that.
// errors: IoError when it can be had from nowhere: the text says where to put which file by hand; FormatError when a
// file is not the published one, or not the one that was fetched.
std::string path_of_data_set(const DataSet& set, const DataPlaces& places, std::ostream& messages);

// The path as it is, or that of the data set that it names.
// errors: as path_of_data_set.
std::string local_data(const std::string& path, std::ostream& messages);

}  // namespace eddy::training
