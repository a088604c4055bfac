#include "tests/ptx/interpreter/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

namespace ptx {
namespace {

bool is_blank(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}
bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Words separated by blanks: ".reg", ".b32", "%r<5>".
std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at < text.size();) {
    while (at < text.size() && is_blank(text[at])) ++at;
    const std::size_t begin = at;
    while (at < text.size() && !is_blank(text[at])) ++at;
    if (at > begin) all.push_back(text.substr(begin, at - begin));
  }
  return all;
}

// `.shared .align 4 .b8 name[32]`, with `= {1, 2}` after it, and the same of parameters.
Variable parse_variable(std::string_view text, Space space) {
  Variable variable;
  variable.space = space;
  std::string_view values;
  if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
    values = trim(text.substr(equals + 1));
    text = text.substr(0, equals);
  }
  Type type = Type::u8;
  bool aligned = false;
  const std::vector<std::string_view> parts = words(text);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string_view word = parts[i];
    if (word == ".align") {
      variable.align = static_cast<int>(number(parts[++i]));
      aligned = true;
    } else if (word.front() != '.') {
      const std::size_t bracket = word.find('[');
      variable.name = word.substr(0, bracket);
      const int unit = bytes_of(type);
      variable.bytes = bracket == std::string_view::npos ? unit : unit * number(word.substr(bracket + 1));
      if (!aligned) variable.align = unit;
    } else if (word != ".shared" && word != ".local" && word != ".global" && word != ".const" &&
               word != ".param" && word != ".extern" && word != ".visible" && word != ".weak" &&
               word != ".ptr" && word != ".common") {
      type = type_of(word.substr(1));
    }
  }
  if (!values.empty()) {
    variable.values.assign(static_cast<std::size_t>(variable.bytes), 0);
    if (values.front() == '{') values = values.substr(1, values.size() - 2);
    std::size_t at = 0;
    const auto unit = static_cast<std::size_t>(bytes_of(type));
    for (const std::string& value : split_list(values)) {
      const std::uint64_t bits = std::strtoull(value.c_str(), nullptr, 0);
      std::memcpy(variable.values.data() + at, &bits, unit);
      at += unit;
    }
  }
  return variable;
}

class Parser {
 public:
  Parser(const std::string& file, std::string_view text) : text_(text) { module_.file = file; }

  Module parse() {
    while (skip_blanks(), at_ < text_.size()) {
      if (text_[at_] == ';') {
        ++at_;
        continue;
      }
      const std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
      if (line.starts_with(".version") || line.starts_with(".target") || line.starts_with(".address_size") ||
          line.starts_with(".file")) {
        skip_line();
      } else if (line.starts_with(".section")) {
        skip_past('}');
      } else if (const std::size_t head = head_of_function(); head != std::string_view::npos) {
        parse_function(head);
      } else if (line.find(".shared") != std::string_view::npos) {
        module_.variables.push_back(parse_variable(until(';'), Space::shared));
      } else if (line.find(".global") != std::string_view::npos ||
                 line.find(".const") != std::string_view::npos) {
        module_.variables.push_back(parse_variable(until(';'), Space::global));
      } else {
        fail(line);
      }
    }
    return std::move(module_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) {
    throw Fault(fmt::format("{}:{}: this is no PTX that the interpreter knows: {}", module_.file, line(),
                            what.substr(0, 100)));
  }
  int line() {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
    counted_ = at_;
    return line_;
  }
  void skip_line() {
    const std::size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  }
  void skip_past(char c) {
    const std::size_t end = text_.find(c, at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  }
  // Blanks, comments, and the lines that say where code comes from.
  void skip_blanks() {
    for (;;) {
      while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
      const std::string_view rest = text_.substr(at_, 5);
      if (!rest.starts_with("//") && rest != ".loc " && rest != ".loc\t") return;
      skip_line();
    }
  }
  std::string_view until(char c) {
    const std::size_t end = text_.find(c, at_);
    if (end == std::string_view::npos) fail("the text ends within a statement");
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }

  // The place of ".entry" or ".func" where such a head begins here.
  std::size_t head_of_function() {
    for (const std::string_view word : {".entry", ".func"}) {
      const std::size_t found = text_.substr(at_, 60).find(word);
      if (found != std::string_view::npos && text_.substr(at_, found).find(';') == std::string_view::npos)
        return at_ + found;
    }
    return std::string_view::npos;
  }

  std::vector<Variable> parameters() {  // at '('
    ++at_;
    std::vector<Variable> all;
    for (const std::string& one : split_list(until(')')))
      if (!one.empty()) all.push_back(parse_variable(one, Space::param));
    return all;
  }

  void parse_function(std::size_t head) {
    at_ = head;
    Function function;
    function.entry = text_.substr(at_).starts_with(".entry");
    at_ += function.entry ? 6 : 5;
    skip_blanks();
    if (text_[at_] == '(')
      for (const Variable& result : parameters()) function.results.push_back(result.name);
    skip_blanks();
    const std::size_t begin = at_;
    while (is_name(text_[at_])) ++at_;
    function.name = text_.substr(begin, at_ - begin);
    skip_blanks();
    if (text_[at_] == '(') function.parameters = parameters();
    const std::size_t open = text_.find('{', at_), end = text_.find(';', at_);
    at_ = std::min(open, end) + 1;  // .maxntid and the like stand before it
    if (end < open) return;         // a declaration
    parse_body(function);
    module_.functions.push_back(std::move(function));
  }

  void parse_body(Function& function) {
    int depth = 1;
    while (skip_blanks(), depth > 0) {
      if (at_ >= text_.size()) fail("the text ends within a function");
      const char c = text_[at_];
      if (c == '{' || c == '}' || c == ';') {
        depth += c == '{' ? 1 : c == '}' ? -1 : 0;
        ++at_;
        continue;
      }
      std::size_t end = at_;
      while (is_name(text_[end])) ++end;
      if (end > at_ && text_[end] == ':') {
        function.labels[std::string(text_.substr(at_, end - at_))] = function.body.size();
        at_ = end + 1;
        continue;
      }
      const int at_line = line();
      parse_statement(function, trim(until(';')), at_line);
    }
  }

  void parse_statement(Function& function, std::string_view text, int at_line) {
    if (text.starts_with(".reg")) return declare(function, text.substr(4));
    if (text.starts_with(".local") || text.starts_with(".shared")) {
      const Space space = text.starts_with(".local") ? Space::local : Space::shared;
      function.variables.push_back(parse_variable(text, space));
      return;
    }
    if (text.starts_with(".param")) {  // of a call: a register
      const Variable variable = parse_variable(text, Space::param);
      function.registers[variable.name] = variable.bytes == 8 ? Type::u64 : Type::u32;
      return;
    }
    if (text.starts_with(".")) {
      if (!text.starts_with(".pragma")) fail(text);
      return;
    }
    Statement statement;
    statement.line = at_line;
    if (text.front() == '@') {
      text.remove_prefix(1);
      statement.negated = text.front() == '!';
      if (statement.negated) text.remove_prefix(1);
      const std::size_t end = text.find_first_of(" \t\n");
      statement.guard = text.substr(0, end);
      text = trim(text.substr(end));
    }
    const std::size_t end = std::min(text.find_first_of(" \t\n["), text.size());
    statement.op = text.substr(0, end);
    statement.operands = split_list(text.substr(end));
    function.body.push_back(std::move(statement));
  }

  // `.b32 %r<5>`, `.b64 %SP`, `.b32 one, other`
  void declare(Function& function, std::string_view text) {
    text = trim(text);
    const std::size_t end = text.find_first_of(" \t");
    const Type type = type_of(text.substr(1, end - 1));
    for (const std::string& name : split_list(text.substr(end))) {
      const auto [place, fresh] = function.registers.emplace(name.substr(0, name.find('<')), type);
      if (!fresh && bytes_of(place->second) != bytes_of(type)) fail("one name for registers of two sizes");
    }
  }

  std::string_view text_;
  std::size_t at_ = 0, counted_ = 0;
  int line_ = 1;
  Module module_;
};

}  // namespace

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += c == '{' || c == '[' || c == '(' ? 1 : c == '}' || c == ']' || c == ')' ? -1 : 0;
    if (c != ',' || depth > 0) continue;
    const std::string_view part = trim(text.substr(begin, i - begin));
    if (!part.empty() || i < text.size()) parts.emplace_back(part);
    begin = i + 1;
  }
  return parts;
}

std::string Statement::text() const {
  const std::string guarded = guard.empty() ? "" : fmt::format("@{}{} ", negated ? "!" : "", guard);
  return fmt::format("{}{} {}", guarded, op, fmt::join(operands, ", "));
}

const Function& Module::function(std::string_view name) const {
  for (const Function& function : functions)
    if (function.name == name) return function;
  throw Fault(fmt::format("{}: no function {}", file, name));
}

Module parse_module(const std::string& file, std::string_view text) {
  return Parser(file, text).parse();
}

Type type_of(std::string_view name) {
  using enum Type;
  static const std::map<std::string_view, Type> types = {
      {"pred", pred},  {"b8", u8},    {"u8", u8},   {"s8", s8},   {"b16", u16}, {"u16", u16}, {"s16", s16},
      {"f16", u16},    {"bf16", u16}, {"b32", u32}, {"u32", u32}, {"s32", s32}, {"f32", f32}, {"f16x2", u32},
      {"bf16x2", u32}, {"b64", u64},  {"u64", u64}, {"s64", s64}, {"f64", f64}};
  const auto found = types.find(name);
  if (found == types.end()) throw Fault(fmt::format("no type of PTX: {}", name));
  return found->second;
}

int bytes_of(Type type) {
  switch (type) {
    case Type::pred:
    case Type::u8:
    case Type::s8:
      return 1;
    case Type::u16:
    case Type::s16:
      return 2;
    case Type::u32:
    case Type::s32:
    case Type::f32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace ptx
