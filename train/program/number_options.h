// Checks of options that are numbers, where CLI11 accepts too much: its conversions turn -1 into the largest
// unsigned number and truncate what is too large, and its ranges accept a NaN.
#pragma once

#include <CLI/CLI.hpp>

namespace eddy {

// Accepts a whole number from 0 to 2^64 - 1.
CLI::Validator seed_number();

// Accepts a number from `low` to `high`, but no NaN.
CLI::Validator number_between(double low, double high);

}  // namespace eddy
