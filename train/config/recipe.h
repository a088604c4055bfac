// What a run of a text is trained with where nobody says otherwise: the entries of recipes.toml that fit the size of
// its text, its minutes and its model. The machine has no part in it: a command gives the same configuration
// everywhere. NewConfig applies it to a new run without a file, and prints what it chose.
#pragma once

#include <cstdint>
#include <string>

#include "train/config/config_file.h"

namespace eddy::training {

// What a choice depends on.
struct RecipeCase {
  std::string model;       // "": the recipe chooses it
  std::int64_t bytes = 0;  // of the text; 0: not known
  double minutes = 0;      // 0: its steps alone end the run
};

// The keys that the entries set, as a file of a configuration would give them.
ConfigSource recipe_for(const RecipeCase& wanted);

// The minutes of a run that has neither minutes nor steps.
double usual_minutes();

}  // namespace eddy::training
