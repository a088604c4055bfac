// forkpty, which the headers of each system declare in another place.
#pragma once

#if __has_include(<pty.h>)
#include <pty.h>
#elif __has_include(<util.h>)
#include <util.h>
#else
#include <sys/ioctl.h>
#include <sys/types.h>
#include <termios.h>

extern "C" pid_t forkpty(int* terminal, char* name, termios* settings, winsize* size);
#endif
