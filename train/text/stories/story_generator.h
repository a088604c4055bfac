// Text to train on without a network: small English stories from a seeded grammar. Each story names a person,
// a home, a carried object and a few other facts early, goes elsewhere for many hundred characters, and then
// needs them again word for word. A model that remembers past its window predicts those places better than
// one that does not.
#pragma once

#include <cstdint>
#include <string>

namespace eddy {

// Exactly `bytes` characters of stories, plain ASCII, separated by a blank line; the last story may be cut.
// The same on every platform, and generate_stories(seed, n) is the beginning of generate_stories(seed, n +
// m).
// errors: ValueError when bytes < 0.
std::string generate_stories(std::uint64_t seed, std::int64_t bytes);

}  // namespace eddy
