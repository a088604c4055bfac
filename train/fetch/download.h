// Fetching files and unpacking archives, by programs of the system that are well kept: curl or wget, tar, unzip.
#pragma once

#include <string>
#include <vector>

namespace eddy::training {

// Downloads a URL to a path by curl, or by wget where there is no curl, behind the bytes that an earlier call left
// there, or anew where the server sends no parts. It waits as long as bytes come, and shows its progress on a terminal.
// Returns "" on success, else the reason in words; what is at the path then is no whole file.
std::string download(const std::string& url, const std::string& path);

// The same by curl alone, silently, in at most 3 s for the connection and 20 s in all.
std::string fetch_with_curl(const std::string& url, const std::string& path);

enum class Packing { none, tar_gz, zip };

// Unpacks these members of an archive, perhaps with others, below a folder that exists. Returns "" on success, else
// the reason in words.
std::string unpack(Packing packing, const std::string& archive, const std::vector<std::string>& members,
                   const std::string& folder);

}  // namespace eddy::training
