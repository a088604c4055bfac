// Words of nanoGPT, Hugging Face's Trainer, llama.cpp and the like, and the edit distance of Damerau and Levenshtein.
#include "train/words/suggest.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

namespace eddy::training {
namespace {

// A name of Eddy's, without its section, and other programs' words for it.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"learning_rate", "lr max_lr peak_lr"},
    {"min_learning_rate", "min_lr"},
    {"schedule", "scheduler lr_scheduler lr_schedule"},
    {"batch", "bs batch_size micro_batch_size train_batch_size per_device_train_batch_size"},
    {"steps", "iters iterations max_iters max_steps num_steps n_steps epochs num_epochs num_train_epochs"},
    {"accumulate", "grad_accum grad_accumulation gradient_accumulation gradient_accumulation_steps"},
    {"weight_decay", "wd"},
    {"clip", "grad_clip clip_grad grad_norm_clip max_grad_norm"},
    {"warmup", "warmup_steps warmup_iters"},
    {"eval_every", "eval_interval eval_steps val_every valid_every"},
    {"eval_batches", "eval_iters"},
    {"checkpoint_every", "save_every save_interval save_steps ckpt_every checkpoint_interval"},
    {"log_every", "log_interval logging_steps print_every"},
    {"sequence", "seq_len seq_length sequence_length max_seq_len max_length"},
    {"context", "ctx n_ctx ctx_size block_size context_length context_size"},
    {"layers", "n_layer n_layers num_layers depth"},
    {"heads", "n_head n_heads num_heads"},
    {"dim", "d_model n_embd embd hidden hidden_size hidden_dim width"},
    {"mlp_dim", "d_ff ffn_dim intermediate_size"},
    {"vocab", "vocab_size n_vocab"},
    {"model", "arch architecture model_name model_type"},
    {"precision", "dtype fp16 bf16 amp"},
    {"device", "gpu cuda"},
    {"optimizer", "optim"},
    {"minutes", "time_limit max_minutes max_time"},
    {"threads", "cpus jobs num_threads n_threads num_workers"},
    {"run", "output output_dir out_dir run_dir save_dir"},
    {"data", "dataset input text file train_file"},
    {"path", "dataset input text file filename train_file folder dir directory corpus"},
    {"checkpoint", "ckpt"},
    {"resume", "continue restart"},
    {"tokens", "max_new_tokens max_tokens n_predict num_tokens length n"},
    {"train", "training trainer optimizer optim fit finetune fine_tune resume continue"},
    {"eval", "evaluate evaluation test validate"},
    {"generate", "sample predict complete infer inference"},
    {"temperature", "temp"},
    {"load", "session restore"},
    {"prompt", "text input start"},
    {"text", "prompt input file data"},
    {"html", "out output page report"},
    {"out", "html output page save"},
};

// A word of a hostile file can be a megabyte long. What is behind the longest name hardly changes the choice.
constexpr std::size_t kLongest = 64;

// "Top-k" becomes "top_k".
std::string plain(std::string_view name) {
  std::string word(name);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return word;
}

// "--top-k" and "model.Top_k" become "top_k".
std::string last_word(std::string_view name) {
  std::string word(name.substr(name.find_last_of('.') + 1));
  return plain(word.erase(0, word.find_first_not_of('-')));
}

// The first of the nearest names of those that are fewer than `distance` edits away, or "".
std::string nearest_within(std::string_view word, const std::vector<std::string>& names,
                           std::size_t distance) {
  const std::string wanted = plain(word.substr(0, kLongest));
  std::string best;
  for (const std::string& name : names)
    if (const std::size_t edits = edit_distance(wanted, plain(name)); edits < distance) {
      best = name;
      distance = edits;
    }
  return best;
}

std::string section_of(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos
             ? ""
             : std::string(name.substr(0, dot)).erase(0, name.find_first_not_of('-'));
}

bool stands_for(const std::string& word, const std::string& name) {
  for (const auto& [known, others] : kWords) {
    if (name != known) continue;
    std::istringstream words(others);
    for (std::string other; words >> other;)
      if (other == word) return true;
  }
  return false;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // By rows: now[j] is the distance between the part of `a` so far and the first j characters of `b`, and the two rows
  // in front are of the parts that are one and two characters shorter.
  std::vector<std::size_t> now(b.size() + 1), one_less = now, two_less = now;
  std::iota(now.begin(), now.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_less.swap(one_less);
    one_less.swap(now);
    now[0] = i;
    for (std::size_t j = 1; j < now.size(); ++j) {
      const std::size_t replaced = one_less[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({replaced, one_less[j] + 1, now[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], two_less[j - 2] + 1);
    }
  }
  return now.back();
}

std::string nearest_match(std::string_view word, const std::vector<std::string>& names) {
  return nearest_within(word, names, std::numeric_limits<std::size_t>::max());
}

std::string suggest_value(std::string_view word, const std::vector<std::string>& names) {
  // A name that shares less than half of it is another word.
  const std::string best = nearest_within(word, names, (word.substr(0, kLongest).size() + 1) / 2);
  return best.empty() ? "" : "nearest: " + best + "; ";
}

std::string suggest_name(std::string_view given, const std::vector<std::string>& names,
                         std::string_view section) {
  constexpr std::size_t kFar = 99;
  const std::string word = last_word(given.substr(0, kLongest));
  const std::string own_section = section.empty() ? section_of(given) : std::string(section);
  const bool is_long = word.size() > 2;  // of two letters nearly every name is near
  const auto distance_of = [&](const std::string& other) -> std::size_t {
    if (other == word) return 0;
    if (stands_for(word, other)) return 1;
    if (!is_long) return kFar;
    const std::size_t edits = edit_distance(word, other);
    if (edits <= std::max<std::size_t>(1, word.size() / 4)) return 1 + edits;
    return other.starts_with(word) || other.ends_with(word) ? kFar - 1 : kFar;
  };
  std::string best;
  std::size_t best_distance = kFar;
  int best_rank = 0;
  for (const std::string& name : names) {
    const std::string of = section_of(name);
    const std::size_t distance = distance_of(last_word(name));
    const int rank = of == own_section ? 0 : of == "train" ? 1 : of == "data" ? 2 : 3;
    if (distance > best_distance || (distance == best_distance && (best.empty() || rank >= best_rank)))
      continue;
    best = name;
    best_distance = distance;
    best_rank = rank;
  }
  return best;
}

}  // namespace eddy::training
