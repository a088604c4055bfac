// What a person should know of how a call was computed, where another way was asked for: a chosen kernel that
// does not take its sizes. The library prints nothing: programs take these texts and show them.
#pragma once

#include <string>
#include <vector>

namespace eddy {

// Keeps a text for take_notices, unless it was given before. Texts hold nothing that changes from call to
// call. Any thread may call it.
void give_notice(const std::string& text);

// The texts given since the last call, in their order.
std::vector<std::string> take_notices();

// From here on every text counts as new; those not taken are dropped.
void forget_notices();

}  // namespace eddy
