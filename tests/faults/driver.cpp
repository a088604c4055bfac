// Breaks training runs at chosen places and says what was lost. For each model family with a state it trains
// a tiny model to its end, and then
//
//   kill, tear   again and again from the beginning, killed at one of the calls by which it writes
//   errors       the same with one call failing: EIO, ENOSPC, EACCES, EMFILE
//   memory       the same with allocations failing: one, some in a row, all from one on
//   damage       resumed from a copy in which one file is changed, cut or missing, or a folder, a link or a pipe
//
// After each it goes on with the run and compares the end with the unbroken run to the bit. Where a call or an
// allocation failed, the program must have ended by itself, with an error. A killed run must be resumed by --resume
// alone (or begun again in its folder, when it had no checkpoint); a damaged checkpoint must be refused by the name of
// the file, and `--checkpoint newest-whole` must go on from the one before.
//
// usage: faults EDDY LIBRARY [--whole] [--family NAME] [--jobs N] [--quiet]
// Exit status: 0 when all of it held; 1 when something was lost; 2 for wrong arguments.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern char** environ;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr auto kLimit = std::chrono::seconds(60);  // for one process; they take a tenth of a second

struct Family {
  std::string name;
  Words flags;
};

// One model of each family with a state, and of each kind of state.
const std::vector<Family> kFamilies{
    {"unit_forget", {"--model.model", "unit_forget"}},
    {"block_recurrent",
     {"--model.family", "block_recurrent", "--model.model", "block_recurrent", "--model.recurrent_layers",
      "0", "--model.segment", "16", "--model.window", "8"}},
    {"memory_llama",
     {"--model.family", "blockwise_recurrent", "--model.model", "memory_llama", "--model.chunk", "8"}},
    {"staircase", {"--model.family", "staircase", "--model.model", "staircase", "--model.chunk", "8"}},
    {"feedback", {"--model.family", "staircase", "--model.model", "feedback"}},
    {"lstm", {"--model.family", "staircase", "--model.model", "lstm"}}};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

struct Ended {
  int status = 0;  // the exit status, or minus the signal's number
  std::string output;
};

// Runs a program with further variables; what it writes goes to `output`.
Ended run(const Words& words, const std::map<std::string, std::string>& variables, const fs::path& output) {
  Words environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::strncmp(*variable, "EDDY_", 5) != 0 && std::strncmp(*variable, "FAULTS_", 7) != 0)
      environment.emplace_back(*variable);
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  const auto pointers = [](const Words& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  };
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t process = 0;
  const int error = posix_spawn(&process, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    std::fprintf(stderr, "faults: cannot start %s: %s\n", words[0].c_str(), std::strerror(error));
    std::exit(2);
  }
  int status = 0;
  bool late = false;
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (waitpid(process, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (late || std::chrono::steady_clock::now() < end) continue;
    late = true;
    kill(process, SIGKILL);
  }
  Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(output)};
  if (late) ended.output = "did not end within a minute\n" + ended.output;
  return ended;
}

// What one case found: empty when all held, and a note on what was lost or done.
struct Outcome {
  std::string problem, note;
};

// One place in the writing of a run, as the library logs it.
struct Call {
  int number = 0;
  std::string name, file;
};

// The run that nothing breaks.
struct Unbroken {
  std::vector<Call> calls;
  long allocations_before = 0, allocations = 0;  // until the first call, and in all
};

struct Case {
  std::string family, what;
  std::function<Outcome()> check;
};

class Tester {
 public:
  Tester(std::string program, std::string library, fs::path folder)
      : program_(std::move(program)), library_(std::move(library)), folder_(std::move(folder)) {
    // Any text will do that has more than a few segments of 16 tokens.
    std::string text;
    for (std::uint32_t state = 1; text.size() < 4000; state = state * 1664525u + 1013904223u)
      text += state >> 29 == 0 ? '\n' : static_cast<char>('a' + (state >> 24) % 20);
    write_file(folder_ / "text", text);
  }

  // Trains the unbroken run of a family and lists the calls that it makes.
  Unbroken prepare(const Family& family) {
    const fs::path run_dir = folder_ / family.name / "unbroken", log = folder_ / family.name / "calls",
                   memory_log = folder_ / family.name / "allocations";
    fs::create_directories(run_dir.parent_path());
    const Ended ended = start(family, run_dir,
                              {{"LD_PRELOAD", library_},
                               {"FAULTS_UNDER", run_dir.string()},
                               {"FAULTS_LOG", log.string()},
                               {"FAULTS_MEMORY_LOG", memory_log.string()}});
    if (ended.status != 0) {
      std::fprintf(stderr, "faults: the unbroken run of %s failed: %s\n", family.name.c_str(),
                   ended.output.c_str());
      std::exit(2);
    }
    Unbroken unbroken;
    std::ifstream(memory_log) >> unbroken.allocations_before >> unbroken.allocations;
    std::ifstream lines(log);
    for (Call call; lines >> call.number >> call.name;) {
      std::getline(lines, call.file);
      call.file = fs::path(call.file.substr(1)).lexically_relative(run_dir).string();
      unbroken.calls.push_back(call);
    }
    return unbroken;
  }

  // A new run, killed or refused at a call, and gone on with.
  Outcome interrupt(const Family& family, const Call& call, const std::string& what) const {
    const fs::path run_dir = case_folder(family, what + "-" + std::to_string(call.number));
    const Ended broken = start(family, run_dir,
                               {{"LD_PRELOAD", library_},
                                {"FAULTS_UNDER", run_dir.string()},
                                {"FAULTS_AT", std::to_string(call.number)},
                                {"FAULTS_DO", what}});
    const bool killed = what == "kill" || what == "tear";
    if (killed && broken.status != -SIGKILL)
      return {"the call was not made: status " + std::to_string(broken.status), ""};
    const std::string problem = killed ? "" : bad_end(broken);
    return problem.empty() ? go_on(family, run_dir) : Outcome{problem, ""};
  }

  // A new run in which `times` allocations in a row fail, and gone on with. A second thread may meet them too.
  Outcome starve(const Family& family, long first, const std::string& times) const {
    const fs::path run_dir = case_folder(family, "memory-" + std::to_string(first) + "-" + times);
    const Ended broken = start(family, run_dir,
                               {{"LD_PRELOAD", library_},
                                {"FAULTS_MEMORY_AT", std::to_string(first)},
                                {"FAULTS_MEMORY_TIMES", times}},
                               "2");
    const std::string problem = bad_end(broken);
    return problem.empty() ? go_on(family, run_dir) : Outcome{problem, ""};
  }

  // A finished run of which one file is changed. `file` is in the newest checkpoint, or a file of the run.
  Outcome damage(const Family& family, const std::string& file, const std::string& how) const {
    std::string name = how + "-" + file;
    std::replace(name.begin(), name.end(), '/', '_');
    const fs::path run_dir = case_folder(family, name);
    fs::copy(folder_ / family.name / "unbroken", run_dir, fs::copy_options::recursive);
    if (!change(run_dir / file, how)) return {"cannot be changed so", ""};
    const bool in_checkpoint = file.find("/step-") != std::string::npos;

    Outcome outcome;
    const Ended plain = resume(run_dir);
    if (in_checkpoint) {
      const std::string leaf = fs::path(file).filename().string();
      if (plain.status == 0)
        outcome.problem = "accepted";
      else if (plain.status != 1)
        outcome.problem = "status " + std::to_string(plain.status);
      else if (plain.output.find(leaf) == std::string::npos)
        outcome.problem = "refused, but " + leaf + " is not named: " + first_error(plain);
      outcome.note = "refused: " + first_error(plain);
    } else if (plain.status != 0 && plain.status != 1) {
      outcome.problem = "status " + std::to_string(plain.status);
    }
    if (outcome.problem.empty()) {
      const Ended rest = resume(run_dir, {"--checkpoint", "newest-whole"});
      outcome.problem = rest.status != 0 ? "newest-whole does not go on: " + first_error(rest)
                                         : difference(family, run_dir);
    }
    if (outcome.problem.empty()) fs::remove_all(run_dir);
    return outcome;
  }

  // The files of a finished run that can be damaged, by their path in it.
  std::vector<std::string> files_of(const Family& family) const {
    const fs::path run_dir = folder_ / family.name / "unbroken";
    std::vector<std::string> files{
        "checkpoints/latest", "checkpoints/best", "metrics.jsonl", "report.html", "id", "config.json"};
    for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints" /
                                                    first_line(read_file(run_dir / "checkpoints/latest"))))
      files.push_back(entry.path().lexically_relative(run_dir).string());
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  fs::path case_folder(const Family& family, const std::string& name) const {
    return folder_ / family.name / name;
  }

  // What is wrong with the end of a program in which something failed; empty when nothing is.
  static std::string bad_end(const Ended& ended) {
    if (ended.status != 0 && ended.status != 1)
      return "status " + std::to_string(ended.status) + ": " + first_error(ended);
    const bool says_why = ended.status == 0 || ended.output.find("error: ") != std::string::npos;
    return says_why ? "" : "ended without an error: " + first_line(ended.output);
  }

  // Goes on with a run that was broken: from its checkpoint, or from the beginning without one.
  Outcome go_on(const Family& family, const fs::path& run_dir) const {
    Outcome outcome;
    const std::int64_t done = last_step(run_dir), saved = latest_step(run_dir);
    Ended rest;
    if (saved >= 0) {
      rest = resume(run_dir);
      outcome.note =
          done > saved ? "lost " + std::to_string(done - saved) + " steps, done again" : "lost nothing";
    } else if (has_checkpoint(run_dir)) {  // the first one, and nothing points to it yet
      rest = resume(run_dir);
      outcome.note = "lost nothing: nothing pointed to the first checkpoint yet";
    } else {
      rest = start(family, run_dir, {});
      outcome.note = "begun again: there was no checkpoint yet";
    }
    outcome.problem = rest.status != 0 ? "does not go on: " + first_error(rest) : difference(family, run_dir);
    if (outcome.problem.empty()) fs::remove_all(run_dir);
    return outcome;
  }

  Ended start(const Family& family, const fs::path& run_dir,
              const std::map<std::string, std::string>& variables, const char* threads = "1") const {
    Words words{program_, "train", "--run", run_dir.string(), "--data", (folder_ / "text").string()};
    words.insert(words.end(), family.flags.begin(), family.flags.end());
    const Words common{"--model.dim",
                       "16",
                       "--model.heads",
                       "2",
                       "--model.context",
                       "16",
                       "--model.dropout",
                       "0.1",
                       "--data.order",
                       "stream",
                       "--train.batch",
                       "2",
                       "--train.steps",
                       "4",
                       "--train.eval_every",
                       "2",
                       "--train.eval_batches",
                       "2",
                       "--train.keep",
                       "2",
                       "--train.sample_tokens",
                       "4",
                       "--train.log_every",
                       "1",
                       "--train.threads",
                       threads,
                       "--train.checkpoint_every",
                       "2"};
    words.insert(words.end(), common.begin(), common.end());
    return run(words, with_own(variables), run_dir.string() + ".out");
  }
  Ended resume(const fs::path& run_dir, const Words& more = {}) const {
    Words words{program_, "train", "--resume", run_dir.string()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, with_own({}), run_dir.string() + ".again.out");
  }
  static std::map<std::string, std::string> with_own(std::map<std::string, std::string> variables) {
    variables.emplace("EDDY_NUM_THREADS", "1");
    return variables;
  }

  // The line of an output that says what is wrong.
  static std::string first_error(const Ended& ended) {
    const std::size_t at = ended.output.find("error: ");
    return first_line(at == std::string::npos ? ended.output : ended.output.substr(at + 7));
  }

  static std::int64_t latest_step(const fs::path& run_dir) {
    const std::string name = first_line(read_file(run_dir / "checkpoints/latest"));
    return name.starts_with("step-") ? std::atoll(name.c_str() + 5) : -1;
  }
  static bool has_checkpoint(const fs::path& run_dir) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints", error))
      if (entry.path().filename().string().starts_with("step-")) return true;
    return false;
  }
  // The last step that the metrics hold.
  static std::int64_t last_step(const fs::path& run_dir) {
    const std::string metrics = read_file(run_dir / "metrics.jsonl"), key = "{\"kind\":\"step\",\"step\":";
    const std::size_t at = metrics.rfind(key);
    return at == std::string::npos ? 0 : std::atoll(metrics.c_str() + at + key.size());
  }

  // How a run differs from the unbroken one; empty when it does not.
  std::string difference(const Family& family, const fs::path& run_dir) const {
    const fs::path unbroken = folder_ / family.name / "unbroken";
    for (const char* pointer : {"latest", "best"})
      if (read_file(run_dir / "checkpoints" / pointer) != read_file(unbroken / "checkpoints" / pointer))
        return std::string(pointer) + " names " + first_line(read_file(run_dir / "checkpoints" / pointer)) +
               " for " + first_line(read_file(unbroken / "checkpoints" / pointer));
    const std::string newest = first_line(read_file(unbroken / "checkpoints/latest"));
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"})
      if (read_file(run_dir / "checkpoints" / newest / file) !=
          read_file(unbroken / "checkpoints" / newest / file))
        return newest + "/" + file + " has other bits";
    for (const auto& entry : fs::recursive_directory_iterator(run_dir))
      if (entry.path().filename().string().find(".tmp-") != std::string::npos)
        return "left over: " + entry.path().lexically_relative(run_dir).string();
    return "";
  }

  // Changes a file; returns whether that made a difference.
  static bool change(const fs::path& path, const std::string& how) {
    const std::string before = read_file(path);
    std::string after = before;
    if (how == "remove") return fs::remove(path);
    if (how == "folder") return fs::remove(path) && fs::create_directory(path);
    if (how == "pipe") return fs::remove(path) && mkfifo(path.c_str(), 0600) == 0;
    if (how == "link" && fs::remove(path)) {
      fs::create_symlink("/dev/zero", path);
      return true;
    }
    if (before.empty()) return false;
    if (how == "flip") after[before.size() / 2] = static_cast<char>(after[before.size() / 2] ^ 0x10);
    if (how == "flip-last") after[before.size() - 2] = static_cast<char>(after[before.size() - 2] ^ 0x01);
    if (how == "zero") {
      const std::size_t length = std::min<std::size_t>(4096, before.size() / 2);
      after.replace(before.size() - length, length, length, '\0');
    }
    if (how == "cut") after.resize(before.size() / 2);
    if (how == "empty") after.clear();
    write_file(path, after);
    return after != before;
  }

  const std::string program_, library_;
  const fs::path folder_;
};

// Every `stride`-th call from `first`; all of them with a stride of 1.
std::vector<Call> some_of(const std::vector<Call>& calls, std::size_t first, std::size_t stride) {
  std::vector<Call> chosen;
  for (std::size_t i = first; i < calls.size(); i += stride) chosen.push_back(calls[i]);
  return chosen;
}

std::string error_name(int error) {
  return error == EIO ? "EIO" : error == ENOSPC ? "ENOSPC" : error == EACCES ? "EACCES" : "EMFILE";
}

// The errors that a call can meet.
std::vector<int> errors_of(const std::string& call) {
  if (call.starts_with("open")) return {EACCES, EMFILE, EIO};
  if (call.starts_with("write") || call.starts_with("pwrite")) return {ENOSPC, EIO};
  if (call.starts_with("fsync") || call.starts_with("close") || call.starts_with("fdatasync"))
    return {EIO, ENOSPC};
  return {EACCES, ENOSPC, EIO};
}

int usage() {
  std::fprintf(stderr, "usage: faults EDDY LIBRARY [--whole] [--family NAME] [--jobs N] [--quiet]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return usage();
  bool whole = false, quiet = false;
  std::string only;
  int jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 3; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--whole")
      whole = true;
    else if (option == "--quiet")
      quiet = true;
    else if (option == "--family" && i + 1 < argc)
      only = argv[++i];
    else if (option == "--jobs" && i + 1 < argc)
      jobs = std::max(1, std::atoi(argv[++i]));
    else
      return usage();
  }
  std::string pattern = (fs::temp_directory_path() / "eddy-faults-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    std::perror("faults: no temporary folder");
    return 2;
  }
  const fs::path folder = fs::canonical(pattern);
  const auto started = std::chrono::steady_clock::now();
  Tester tester(fs::canonical(argv[1]).string(), fs::canonical(argv[2]).string(), folder);

  std::vector<Case> cases;
  std::size_t families = 0;
  for (const Family& family : kFamilies) {
    if (!only.empty() && only != family.name) continue;
    const Unbroken unbroken = tester.prepare(family);
    const std::vector<Call>& calls = unbroken.calls;
    const std::size_t index = families++;
    std::printf("%s: %zu calls, %ld allocations\n", family.name.c_str(), calls.size(), unbroken.allocations);
    std::vector<Call> writes;
    for (const Call& call : calls)
      if (call.name == "write") writes.push_back(call);
    // In the short form a few places of each family, not the same ones.
    const std::size_t kills = whole ? 1 : calls.size() / 6, tears = whole ? 1 : writes.size() / 2;
    const auto add = [&](const Call& call, const std::string& action, const std::string& shown) {
      cases.push_back({family.name,
                       shown + " at " + std::to_string(call.number) + " " + call.name + " " + call.file,
                       [&tester, &family, call, action] { return tester.interrupt(family, call, action); }});
    };
    for (const Call& call : some_of(calls, whole ? 0 : (index * 7 + 3) % kills, kills))
      add(call, "kill", "kill");
    for (const Call& call : some_of(writes, whole ? 0 : (index * 5 + 1) % tears, tears))
      add(call, "tear", "tear");
    std::size_t turn = index;
    for (const Call& call : some_of(calls, whole ? 0 : (index * 11 + 5) % kills, kills)) {
      const std::vector<int> errors = errors_of(call.name);
      const int error = errors[turn++ % errors.size()];
      add(call, std::to_string(error), error_name(error));
    }
    // Four of five allocations read the command line: a tenth of the places is there.
    const std::size_t places = whole ? 160 : 10;
    for (std::size_t place = 0; place < places; ++place) {
      const bool early = place % 10 == 0;
      const long begin = early ? 1 : unbroken.allocations_before,
                 end = early ? unbroken.allocations_before : unbroken.allocations;
      const double part =
          (static_cast<double>(place) + static_cast<double>(index + 1) / 7) / static_cast<double>(places);
      const long first = begin + static_cast<long>(part * static_cast<double>(end - begin));
      const std::string times = std::vector{"1", "3", "30", "1000000000"}[(place + index) % 4];
      cases.push_back({family.name, times + " allocations fail from " + std::to_string(first),
                       [&tester, &family, first, times] { return tester.starve(family, first, times); }});
    }
    for (const std::string& file : tester.files_of(family)) {
      const Words ways{"flip", "cut", "remove", "flip-last", "zero", "empty", "folder", "pipe", "link"};
      for (std::size_t way = 0; way < ways.size(); ++way) {
        // In the short form two ways a file; a flipped bit in each, since nothing else looks so whole.
        if (!whole && way != 0 && way != 1 + turn % 8) continue;
        cases.push_back({family.name, ways[way] + " " + file, [&tester, &family, file, how = ways[way]] {
                           return tester.damage(family, file, how);
                         }});
      }
      ++turn;
    }
  }
  if (families == 0) return usage();

  std::atomic<std::size_t> next{0};
  std::mutex printing;
  std::vector<std::string> problems;
  std::map<std::string, int> notes;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < cases.size();) {
      const Case& one = cases[i];
      const Outcome outcome = one.check();
      const std::lock_guard<std::mutex> lock(printing);
      const std::string line = one.family + ": " + one.what + ": ";
      ++notes[outcome.note.substr(0, outcome.note.find(':'))];
      if (!outcome.problem.empty()) problems.push_back(line + outcome.problem);
      if (!quiet || !outcome.problem.empty())
        std::printf("%s%s%s\n", line.c_str(), outcome.problem.empty() ? "" : "LOST: ",
                    (outcome.problem.empty() ? outcome.note : outcome.problem).c_str());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < jobs; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::printf("\n%zu cases in %zu families, %.0f s\n", cases.size(), families, seconds);
  for (const auto& [note, count] : notes)
    if (!note.empty()) std::printf("  %5d  %s\n", count, note.c_str());
  if (problems.empty()) {
    std::printf("every run ended with the bits of the unbroken one\n");
    fs::remove_all(folder);
    return 0;
  }
  std::printf("%zu LOST (their folders are kept in %s):\n", problems.size(), folder.c_str());
  for (const std::string& problem : problems) std::printf("  %s\n", problem.c_str());
  return 1;
}
