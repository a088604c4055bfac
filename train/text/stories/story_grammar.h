// The words and sentences of the generated stories, as text. Blocks are separated by blank lines; the first
// line of a block is a symbol, the others are its alternatives, one per line or separated by " / ". In an
// alternative,
//
//   <symbol>               is replaced by one of the symbol's alternatives
//   <a symbol>             the same with "a" or "an" before it
//   <^symbol> <^a symbol>  the same with a capital letter
//
// The facts of a story (hero, home, thing, ...) keep their words throughout that story; story_generator.cpp
// lists them.
#pragma once

namespace eddy {

extern const char* const kStoryGrammar;

}  // namespace eddy
