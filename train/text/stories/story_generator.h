// Training text without a download: small English stories from a seeded grammar. Each story names a person, a
// home, a carried object and a few other facts early, digresses for many hundred characters, and then repeats
// them word for word. A model that remembers beyond its attention window predicts the repetitions better.
#pragma once

#include <cstdint>
#include <string>

namespace eddy {

// Exactly `bytes` characters of stories, plain ASCII, separated by blank lines; the last story may be cut.
// The same on every platform; generate_stories(seed, n) is a prefix of generate_stories(seed, n + m).
// errors: ValueError when bytes < 0.
std::string generate_stories(std::uint64_t seed, std::int64_t bytes);

}  // namespace eddy
