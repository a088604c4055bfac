// Calls on open files and names of files that systems have in forms of their own.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <string>

namespace eddy {

// Brings an open file or folder to the disk itself. Returns 0, or -1 with errno, as fsync does; a signal does not
// interrupt it.
int sync_file(int file);

// Exchanges what two names of one file system lead to, at once: each of them leads to something at all times.
// Returns 0, or -1 with errno, ENOSYS or EINVAL where it cannot be done.
int exchange_names(const std::string& one, const std::string& other);

// Returns a descriptor of a new, empty file without a name, for reading and writing, which ends with its last
// descriptor; -1 with errno. `called` is for those who look at the process.
int unnamed_file(const char* called);

// Returns the path under which an open folder is found now; "" where it has none, or the system does not tell.
std::string path_of_folder(int folder);

// Returns when the content of a file was changed last.
std::timespec change_time(const struct stat& status);

}  // namespace eddy
