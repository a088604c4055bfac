// The words and sentences of the generated stories, as text: blocks separated by blank lines, each a symbol
// and then one alternatives, one per line or with " / " between them. In an alternative, <symbol> stands for
// one of the symbol's alternatives, <a symbol> sets "a" or "an" before it, and <^symbol> or <^a symbol>
// starts with a capital. Symbols that a story binds (hero, home, thing, ...) mean the same words throughout
// that story; story_generator.cpp lists them.
#pragma once

namespace eddy {

extern const char* const kStoryGrammar;

}  // namespace eddy
