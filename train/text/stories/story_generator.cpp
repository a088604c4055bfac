// Generates stories from a grammar. A story first chooses its facts (who, where, what is carried, what was
// promised), then names them, continues with filler sentences, and repeats the facts unchanged.
//
// The grammar is grammar.txt. Blocks are separated by blank lines; the first line of a block
// is a symbol, the others are its alternatives, one per line or separated by " / ". In an alternative,
//
//   <symbol>               is replaced by one of the symbol's alternatives
//   <a symbol>             the same with "a" or "an" before it
//   <^symbol> <^a symbol>  the same with a capital letter
//
// The facts of a story (hero, home, thing, ...) keep their words throughout that story.
#include "train/text/stories/stories.h"

#include <array>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/random/uniform_draw.h"

namespace eddy::training {
namespace {

constexpr std::string_view kStoryGrammar =
#include "embedded/train/text/stories/grammar.txt"
    ;

using Grammar = std::unordered_map<std::string_view, std::vector<std::string_view>>;

// Parts of `text` between separators, the empty ones left out.
std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    if (at != 0 && !text.empty()) parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

Grammar parse_grammar(std::string_view text) {
  Grammar grammar;
  for (std::string_view block : split(text, "\n\n")) {
    const std::vector<std::string_view> lines = split(block, "\n");
    std::vector<std::string_view>& alternatives = grammar[lines.front()];
    for (std::size_t i = 1; i < lines.size(); ++i)
      for (std::string_view alternative : split(lines[i], " / ")) alternatives.push_back(alternative);
  }
  return grammar;
}

const Grammar& grammar() {
  static const Grammar parsed = parse_grammar(kStoryGrammar);
  return parsed;
}

// The random choices and the bound facts of one story. Words are drawn in statements of their own, never as
// operands of one expression, whose order of evaluation is the compiler's choice.
class Story {
 public:
  Story(std::uint64_t seed, std::uint64_t index) : key_(random_key(seed, "data.stories", index)) {}

  // The story's paragraphs, one per line.
  std::string tell();

 private:
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(uniform_below(key_, draws_++, bound));
  }
  bool chance(std::size_t percent) { return below(100) < percent; }

  // An alternative of a symbol. Each symbol runs through all of its alternatives in random order before it
  // repeats one.
  std::string_view pick(std::string_view symbol);
  // The text with every <symbol> replaced; as deep as the grammar nests, which is four levels.
  std::string expand(std::string_view text);
  std::string resolve(std::string_view symbol);
  std::string one(std::string_view symbol) { return expand(pick(symbol)); }
  void bind(std::string_view symbol, std::string words) { bound_[symbol] = std::move(words); }

  void bind_people();
  void bind_facts();
  std::vector<std::string_view> choose_facts();
  void add(std::string_view symbol);
  void add_fillers(std::size_t count);
  void end_paragraph();
  void tell_journey();
  void tell_trouble();
  void tell_return();

  RandomKey key_;
  std::uint64_t draws_ = 0;
  std::unordered_map<std::string_view, std::vector<std::string_view>> decks_;
  std::unordered_map<std::string_view, std::string> bound_;
  std::array<bool, 5> has_{};  // which of kFacts this story tells
  std::string text_;
};

// Facts beside home, thing and friend. Their sentences are the symbols NAME_intro and NAME_recall.
enum Fact : std::size_t { kPromise, kWord, kCount, kPet, kDoor };
constexpr std::array<std::string_view, 5> kIntros = {"promise_intro", "word_intro", "count_intro",
                                                     "pet_intro", "door_intro"};

std::string_view Story::pick(std::string_view symbol) {
  std::vector<std::string_view>& deck = decks_[symbol];
  if (deck.empty()) {
    const auto found = grammar().find(symbol);
    if (found == grammar().end()) fail<ValueError>("stories: the grammar has no symbol '{}'", symbol);
    deck = found->second;
  }
  const std::size_t chosen = below(deck.size());
  const std::string_view alternative = deck[chosen];
  deck.erase(deck.begin() + static_cast<std::ptrdiff_t>(chosen));
  return alternative;
}

std::string Story::resolve(std::string_view symbol) {
  const bool capital = symbol.starts_with('^');
  if (capital) symbol.remove_prefix(1);
  const bool article = symbol.starts_with("a ");
  if (article) symbol.remove_prefix(2);
  const auto found = bound_.find(symbol);
  std::string words = found != bound_.end() ? found->second : one(symbol);
  if (article)
    words.insert(0, std::string_view("aeiou").find(words.front()) == std::string_view::npos ? "a " : "an ");
  if (capital && words.front() >= 'a' && words.front() <= 'z')
    words.front() = static_cast<char>(words.front() - 'a' + 'A');
  return words;
}

std::string Story::expand(std::string_view text) {
  std::string words;
  while (true) {
    const std::size_t open = text.find('<');
    words += text.substr(0, open);
    if (open == std::string_view::npos) return words;
    const std::size_t close = text.find('>', open);
    words += resolve(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
}

void Story::bind_people() {
  const bool girl = chance(50);
  bind("hero", one(girl ? "girl" : "boy"));
  bind("he", girl ? "she" : "he");
  bind("him", girl ? "her" : "him");
  bind("his", girl ? "her" : "his");
  bind("himself", girl ? "herself" : "himself");
  const bool friend_girl = chance(50);
  bind("friend", one(friend_girl ? "girl" : "boy"));
  bind("fhim", friend_girl ? "her" : "him");
  bind("fhis", friend_girl ? "her" : "his");
}

void Story::bind_facts() {
  for (const std::string_view symbol : {"ruin", "trade", "giver", "pocket", "good", "word", "count",
                                        "animals", "petkind", "pet", "colour", "village", "market", "homely"})
    bind(symbol, one(symbol));
  bind("home", expand("<building> <where>"));
  bind("fhome", expand("<building> <where>"));
  bind("place", expand("<far> <farwhere>"));

  const std::vector<std::string_view> month = split(pick("month"), " | ");
  bind("month", std::string(month[0]));
  bind("season", std::string(month[1]));

  // What is carried, the trouble that needs it, and how it helps.
  const std::vector<std::string_view> item = split(pick("item"), " | ");
  bind("noun", std::string(item[0]));
  bind("thing", expand(chance(60) ? "<look> <metal> <noun>" : "<metal> <noun>"));
  bind("problem", expand(item[1]));
  bind("solution", expand(item[2]));
}

// Two to four facts, in the order in which the story names them.
std::vector<std::string_view> Story::choose_facts() {
  std::vector<std::size_t> left = {kPromise, kWord, kCount, kPet, kDoor};
  std::vector<std::string_view> intros;
  for (std::size_t wanted = 2 + below(3); wanted > 0; --wanted) {
    const std::size_t chosen = below(left.size());
    has_[left[chosen]] = true;
    intros.push_back(kIntros[left[chosen]]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return intros;
}

void Story::add(std::string_view symbol) {
  if (!text_.empty() && text_.back() != '\n') text_.push_back(' ');
  text_ += one(symbol);
}

void Story::add_fillers(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) add("filler");
}

void Story::end_paragraph() {
  if (!text_.empty() && text_.back() != '\n') text_.push_back('\n');
}

void Story::tell_journey() {
  add("leave");
  add_fillers(below(3));
  end_paragraph();
  for (std::size_t legs = 1 + below(3); legs > 0; --legs) {
    add_fillers(2 + below(4));
    end_paragraph();
    if (chance(60)) add("talk");
    end_paragraph();
    if (chance(35)) add("detour");
    end_paragraph();
  }
}

void Story::tell_trouble() {
  add("arrival");
  add("trouble");
  end_paragraph();
  add("recall_thing");
  if (chance(60)) {
    end_paragraph();
    add("whose");
  }
  end_paragraph();
}

void Story::tell_return() {
  add("homeward");
  add_fillers(below(3));
  end_paragraph();
  if (has_[kWord]) add("word_recall");
  if (has_[kDoor]) add("door_recall");
  add("recall_home");
  if (has_[kCount]) add("count_recall");
  if (has_[kPet]) add("pet_recall");
  end_paragraph();
  add("recall_friend");
  if (has_[kPromise]) add("promise_recall");
  end_paragraph();
  add("ending");
  end_paragraph();
}

std::string Story::tell() {
  bind_people();
  bind_facts();
  add("opening");
  end_paragraph();
  add("friend_intro");
  for (const std::string_view intro : choose_facts()) add(intro);
  end_paragraph();
  tell_journey();
  tell_trouble();
  tell_return();
  return std::move(text_);
}

}  // namespace

std::string generate_stories(std::uint64_t seed, std::int64_t bytes) {
  if (bytes < 0) fail<ValueError>("stories: bytes must not be negative: {}", bytes);
  const auto size = static_cast<std::size_t>(bytes);
  std::string text;
  for (std::uint64_t index = 0; text.size() < size; ++index) {
    if (index > 0) text.push_back('\n');
    text += Story(seed, index).tell();
  }
  text.resize(size);
  return text;
}

}  // namespace eddy::training
