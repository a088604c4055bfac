// A browser without a screen, for what a page looks like.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/support/files.h"
#include "tests/support/processes.h"

namespace eddy::test {

// The document that a browser makes of an address, scripts included; empty, with a message, where there is no browser.
// Pages of files may look into each other. `flags`: further ones of the browser.
inline std::string shown_by_browser(const std::string& address, const std::string& flags = "") {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (output_of(std::string("command -v ") + name).empty()) continue;
    const TempFolder profile;
    std::string document = output_of(
        "HOME=" + profile.path() + " timeout 100 " + name +
        " --headless --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir=" +
        profile.path("data") + " --virtual-time-budget=8000 " + flags + " --dump-dom '" + address + "'");
    if (document.empty()) MESSAGE("skipped: " << name << " gave no document within 100 s");
    return document;
  }
  MESSAGE("skipped: there is no browser (apt-get install chromium)");
  return "";
}

}  // namespace eddy::test
