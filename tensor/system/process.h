// This process, and others that it starts.
#pragma once

#include <sys/types.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace eddy {

// Returns a path that leads to this program's file, to read it or to start it again; "" where it is not known.
std::string own_program();

// Returns the variables of this process, as NAME=value, with a null behind them.
char** own_environment();

// Returns the paths of the libraries that were loaded; none where the system does not tell.
std::vector<std::string> loaded_libraries();

// Returns whether a process has ended. A zombie has: it only waits for its parent to hear of it.
bool has_ended(pid_t process);

// Whether SIGHUP was ignored when the program was started, whatever a library did to it as it was loaded. Noted before
// `main` (memory_limit_linux.cpp); false where the program does not have that.
extern bool hangup_was_ignored;

// Takes a signal that is blocked and waits for this thread off its queue, if there is one.
void take_pending_signal(const sigset_t& signal);

// Makes a pipe whose ends programs that are started do not inherit. Returns 0, or -1 with errno.
int open_pipe(std::array<int, 2>& ends);

// Starts a child that calls become(what), which becomes another program or returns an error; whatever it changes in
// memory may be seen here. It must make only calls that need no lock. Returns the child, or -1 and the error.
pid_t start_child(int (*become)(void* what), void* what, int& error);
// Becomes a program, in a child, which is looked up in PATH. Returns the error.
int become_program(const char* file, char* const* arguments, char* const* environment);
// Has this process, a child, killed as soon as its parent ends; where the system does not do that, it lives on. Returns
// whether the parent is still there.
bool end_with_parent(pid_t parent);

}  // namespace eddy
