// Writes the few fields of the protocol buffers by hand.
#include "train/record/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tensor/base/format.h"
#include "train/files/folders.h"

namespace eddy::training {
namespace {

constexpr std::string_view kName = "events.out.tfevents.";

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kReflected = 0x82f63b78;  // the polynomial 0x1edc6f41, lowest bit first
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? kReflected : 0u);
    table[i] = value;
  }
  return table;
}

template <class Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Word); ++i)
    bytes += static_cast<char>(static_cast<std::uint8_t>(word >> (8 * i)));
  return bytes;
}

std::string check_of(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(static_cast<std::uint8_t>(value | 0x80));
  return bytes + static_cast<char>(static_cast<std::uint8_t>(value));
}

// A field of a protocol buffer: its number and kind (0 varint, 1 of 8 bytes,
// 2 with a length, 5 of 4 bytes) in one byte.
char field_key(int number, int kind) {
  return static_cast<char>(number << 3 | kind);
}
std::string with_length(int number, std::string_view bytes) {
  return field_key(number, 2) + varint(bytes.size()) + std::string(bytes);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t value = ~std::uint32_t{0};
  for (const char byte : bytes)
    value = (value >> 8) ^ kTable[(value ^ static_cast<std::uint8_t>(byte)) & 0xffu];
  return ~value;
}

bool EventFile::is_name(std::string_view name) {
  return name.starts_with(kName);
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t step) {
  make_folders(folder);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  // TensorBoard reads the files of a folder in the order of their names: ten digits of seconds, then a count.
  for (int again = 0; file_.get() < 0; ++again) {
    path_ = folder / fmt::format("{}{:010}.{:06}.eddy", kName, seconds, again);
    file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file_.get() < 0 && (errno != EEXIST || again == 999'999))
      fail<IoError>("tensorboard: cannot make {}: {}", path_.string(), std::strerror(errno));
  }
  append(0, with_length(3, "brain.Event:2"));
  const std::string started{field_key(1, 0), 1};  // SessionLog.status = START
  append(step + 1, with_length(7, started));
}

void EventFile::write(std::int64_t step, const std::vector<std::pair<std::string, double>>& numbers) {
  if (numbers.empty()) return;
  std::string summary;
  for (const auto& [name, number] : numbers) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(number));
    summary += with_length(1, with_length(1, name) + field_key(2, 5) + little_endian(bits));
  }
  append(step, with_length(5, summary));
}

void EventFile::append(std::int64_t step, std::string_view fields) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event = field_key(1, 1) + little_endian(std::bit_cast<std::uint64_t>(now.count()));
  event += field_key(2, 0) + varint(static_cast<std::uint64_t>(step));
  event += fields;
  const std::string length = little_endian(std::uint64_t{event.size()});
  const std::string record = length + check_of(length) + event + check_of(event);
  struct stat before {};
  const bool known = ::fstat(file_.get(), &before) == 0;
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // A cut record would end the file for its readers.
      if (known) (void)!::ftruncate(file_.get(), before.st_size);
      fail<IoError>("tensorboard: cannot write {}: {}", path_.string(), std::strerror(error));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace eddy::training
