// forkpty, whose header has another name on macOS.
#pragma once

#if defined(__APPLE__)
#include <util.h>
#else
#include <pty.h>
#endif
