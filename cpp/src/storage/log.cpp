#include "storage/log.hpp"

#include <bit>
#include <cstring>

#include "storage/crc32c.hpp"

namespace tamis {

static_assert(std::endian::native == std::endian::little, "files are little endian");

namespace {

constexpr std::string_view kMagic = "TAMISLOG";
constexpr std::size_t kChecksumAt = 28;  // in the header

// Value types of ids in a payload.
constexpr unsigned char kNone = 0, kInteger = 1, kString = 2;

template <class T>
T load(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

bool is_zero(std::string_view bytes) { return bytes.find_first_not_of('\0') == bytes.npos; }

// Encoding

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_string(std::string& out, std::string_view text) {
  put_varint(out, text.size());
  out.append(text);
}

void put_id(std::string& out, const IdView& id) {
  switch (id.type) {
    case IdType::none:
      throw ArgumentError("an id in the log must be an integer or a string, not none");
    case IdType::integer:
      out.push_back(kInteger);
      out.append(reinterpret_cast<const char*>(&id.integer), sizeof id.integer);
      break;
    case IdType::string:
      out.push_back(kString);
      put_string(out, id.string);
      break;
  }
}

std::string begin_payload(LogRecord::Kind kind, std::size_t n_rows) {
  std::string out;
  out.push_back(static_cast<char>(kind));
  put_varint(out, n_rows);
  return out;
}

// Decoding: every read is checked against the payload's end.
class Decoder {
 public:
  Decoder(std::string_view payload, const std::string& path, std::uint64_t offset)
      : rest_(payload), path_(path), offset_(offset) {}

  unsigned char take_byte() { return static_cast<unsigned char>(take(1)[0]); }

  std::uint64_t take_varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t byte = take_byte();
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number is too long");
  }

  double take_double() { return load<double>(take(8), 0); }

  std::string_view take_string() {
    const std::uint64_t n_bytes = take_varint();
    return take(n_bytes);
  }

  std::optional<IdView> take_optional_id() {
    switch (take_byte()) {
      case kNone:
        return std::nullopt;
      case kInteger:
        return IdView::of(load<std::int64_t>(take(8), 0));
      case kString:
        return IdView::of(take_string());
      default:
        fail("an id has an unknown type");
    }
  }

  IdView take_id() {
    const std::optional<IdView> id = take_optional_id();
    if (!id) fail("an id is missing");
    return *id;
  }

  // A count of rows of `n_least` bytes or more: one that cannot be true must not allocate.
  std::size_t take_n_rows(std::size_t n_least) {
    const std::uint64_t n_rows = take_varint();
    if (n_rows > rest_.size() / n_least) fail("it has fewer rows than it says");
    return static_cast<std::size_t>(n_rows);
  }

  void end() const {
    if (!rest_.empty()) fail("it goes on behind its last row");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw StorageError(path_, "the record at byte " + std::to_string(offset_) +
                                  " is malformed though its checksum is right: " + why);
  }

 private:
  std::string_view take(std::uint64_t n_bytes) {
    if (n_bytes > rest_.size()) fail("it ends too early");
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(n_bytes));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
  const std::string& path_;
  std::uint64_t offset_;
};

// Headers

std::string make_header(std::uint64_t sequence) {
  std::string header(kLogHeaderSize, '\0');
  kMagic.copy(header.data(), kMagic.size());
  store(header.data() + 8, kLogVersion);
  store(header.data() + 16, sequence);
  store(header.data() + kChecksumAt, crc32c(header.data(), kChecksumAt));
  return header;
}

// Whether the file has a header, and if not, whether that is a creation cut short.
bool has_header(std::string_view file, const std::string& path) {
  if (file.size() < kLogHeaderSize) {
    const std::string_view begin = file.substr(0, kMagic.size());
    if (is_zero(file) || begin == kMagic.substr(0, begin.size())) return false;
  } else if (file.starts_with(kMagic)) {
    return true;
  } else if (is_zero(file)) {  // some systems make the length durable before the bytes
    return false;
  }
  throw StorageError(path, "is not a Tamis log");
}

void check_header(std::string_view file, const std::string& path) {
  if (load<std::uint32_t>(file, kChecksumAt) != crc32c(file.data(), kChecksumAt)) {
    throw StorageError(path, "the log's header is damaged: its checksum is wrong");
  }
  const auto version = load<std::uint32_t>(file, 8);
  if (version > kLogVersion) {
    throw StorageError(path,
                       "was written by a newer Tamis (format " + std::to_string(version) + ")");
  }
  if (version != kLogVersion || load<std::uint32_t>(file, 12) != 0) {
    throw StorageError(path, "has a log header this Tamis does not know");
  }
}

bool has_good_length(std::string_view file, std::size_t at) {
  return load<std::uint32_t>(file, at + 12) == crc32c(file.data() + at, 8);
}

// The payload of the record at `at`, if all of it is there and valid. `next` becomes the place
// behind it where its length can be true, else the end of the file.
std::optional<std::string_view> find_record(std::string_view file, std::size_t at,
                                            std::size_t& next) {
  next = file.size();
  const std::size_t n_left = file.size() - at;
  if (n_left < kLogRecordHeaderSize) return std::nullopt;
  const auto n_payload = load<std::uint64_t>(file, at);
  if (n_payload > n_left - kLogRecordHeaderSize) return std::nullopt;
  const std::string_view payload =
      file.substr(at + kLogRecordHeaderSize, static_cast<std::size_t>(n_payload));
  next = at + kLogRecordHeaderSize + payload.size();
  const std::uint32_t crc = crc32c(payload.data(), payload.size(), crc32c(file.data() + at, 8));
  const bool is_valid = load<std::uint32_t>(file, at + 8) == crc && has_good_length(file, at);
  return is_valid ? std::optional(payload) : std::nullopt;
}

}  // namespace

std::string log_path(const std::string& directory, std::uint64_t sequence) {
  return directory + "/log-" + std::to_string(sequence) + ".wal";
}

std::string encode_subscribe(std::span<const LogSubscribe> rows) {
  std::string out = begin_payload(LogRecord::Kind::subscribe, rows.size());
  for (const LogSubscribe& row : rows) {
    put_id(out, row.id);
    put_string(out, row.predicate);
    if (row.subscriber && row.subscriber->type != IdType::none) {
      put_id(out, *row.subscriber);
    } else {
      out.push_back(kNone);
    }
  }
  return out;
}

std::string encode_unsubscribe(std::span<const IdView> ids) {
  std::string out = begin_payload(LogRecord::Kind::unsubscribe, ids.size());
  for (const IdView& id : ids) put_id(out, id);
  return out;
}

std::string encode_move(std::span<const LogMove> rows) {
  constexpr std::size_t kUsualRow = 26;
  std::string out = begin_payload(LogRecord::Kind::move, rows.size());
  out.reserve(out.size() + kUsualRow * rows.size());
  for (const LogMove& row : rows) {
    put_id(out, row.id);
    // 0: the only one; else which, counted from 1.
    put_varint(out, row.area ? std::uint64_t{*row.area} + 1 : 0);
    out.append(reinterpret_cast<const char*>(&row.x), sizeof row.x);
    out.append(reinterpret_cast<const char*>(&row.y), sizeof row.y);
  }
  return out;
}

LogRecord decode_record(std::string_view payload, const std::string& path, std::uint64_t offset) {
  constexpr std::size_t kLeastId = 2;                    // type, length of an empty string
  constexpr std::size_t kLeastSubscribe = kLeastId + 2;  // length of the predicate, no subscriber
  constexpr std::size_t kLeastMove = kLeastId + 17;      // which area, x, y
  Decoder in(payload, path, offset);
  LogRecord record;
  record.offset = offset;
  const unsigned char kind = in.take_byte();
  if (kind == static_cast<unsigned char>(LogRecord::Kind::subscribe)) {
    record.kind = LogRecord::Kind::subscribe;
    const std::size_t n_rows = in.take_n_rows(kLeastSubscribe);
    record.rows.reserve(n_rows);
    for (std::size_t row_idx = 0; row_idx < n_rows; ++row_idx) {
      LogSubscribe& row = record.rows.emplace_back();
      row.id = in.take_id();
      row.predicate = in.take_string();
      row.subscriber = in.take_optional_id();
    }
  } else if (kind == static_cast<unsigned char>(LogRecord::Kind::unsubscribe)) {
    record.kind = LogRecord::Kind::unsubscribe;
    const std::size_t n_rows = in.take_n_rows(kLeastId);
    record.ids.reserve(n_rows);
    for (std::size_t row_idx = 0; row_idx < n_rows; ++row_idx) record.ids.push_back(in.take_id());
  } else if (kind == static_cast<unsigned char>(LogRecord::Kind::move)) {
    record.kind = LogRecord::Kind::move;
    const std::size_t n_rows = in.take_n_rows(kLeastMove);
    record.moves.reserve(n_rows);
    for (std::size_t row_idx = 0; row_idx < n_rows; ++row_idx) {
      LogMove& row = record.moves.emplace_back();
      row.id = in.take_id();
      const std::uint64_t area = in.take_varint();
      if (area > std::uint64_t{1} << 32) in.fail("an area has too large a number");
      if (area > 0) row.area = static_cast<std::uint32_t>(area - 1);
      row.x = in.take_double();
      row.y = in.take_double();
    }
  } else {
    in.fail("its kind is " + std::to_string(kind));
  }
  in.end();
  return record;
}

LogSummary read_log(const std::string& path, const std::function<void(const LogRecord&)>& visit) {
  // Not mapped: a writer beside this reader may shorten its log, and that would kill the process.
  const std::string bytes = read_file(path);
  const std::string_view file = bytes;
  LogSummary summary;
  if (!has_header(file, path)) {
    summary.has_torn_tail = true;
    return summary;
  }
  check_header(file, path);
  summary.sequence = load<std::uint64_t>(file, 16);
  std::size_t at = kLogHeaderSize;
  while (at < file.size()) {
    std::size_t next = 0;
    const std::optional<std::string_view> payload = find_record(file, at, next);
    if (!payload) {
      // A write that was cut short within the header leaves nothing behind it, or zeros.
      if (file.size() - at >= kLogRecordHeaderSize && !has_good_length(file, at) &&
          !is_zero(file.substr(at + kLogRecordHeaderSize))) {
        throw StorageError(path, "the record at byte " + std::to_string(at) +
                                     " is damaged: the checksum of its length is wrong");
      }
      std::size_t behind = 0;
      if (next < file.size() && find_record(file, next, behind)) {
        throw StorageError(path, "the record at byte " + std::to_string(at) +
                                     " is damaged: its checksum is wrong, and whole records "
                                     "follow it");
      }
      summary.has_torn_tail = true;
      break;
    }
    if (visit) visit(decode_record(*payload, path, at));
    ++summary.n_records;
    at = next;
  }
  summary.end_of_whole_records = at;
  return summary;
}

std::unique_ptr<LogWriter> LogWriter::create(const std::string& directory, std::uint64_t sequence) {
  const std::string path = log_path(directory, sequence);
  if (exists(path) && read_log(path, nullptr).n_records > 0) {
    throw StorageError(path, "cannot create the log: it exists and holds changes");
  }
  File file = File::create(path, false);
  file.write_all(make_header(sequence));
  file.sync();
  sync_directory(directory);
  return std::unique_ptr<LogWriter>(new LogWriter(std::move(file), sequence, kLogHeaderSize));
}

std::unique_ptr<LogWriter> LogWriter::resume(const std::string& directory, std::uint64_t sequence,
                                             std::uint64_t end) {
  if (end < kLogHeaderSize) return create(directory, sequence);
  const std::string path = log_path(directory, sequence);
  File file = File::open_append(path);
  const std::uint64_t size = file.size();
  if (size < end) {
    throw StorageError(path, "cannot go on at byte " + std::to_string(end) + ": it has " +
                                 std::to_string(size) + " bytes");
  }
  if (size > end) file.truncate(end);
  // Always: the process before may have died between a write, or the creation, and its sync, and
  // what the reader has shown from now on must last.
  file.sync();
  sync_directory(directory);
  return std::unique_ptr<LogWriter>(new LogWriter(std::move(file), sequence, end));
}

void LogWriter::check_not_broken() const {
  if (const char* what = broken_by_.load()) {
    throw StorageError(path(), std::string("the log is in an unknown state after a failed ") +
                                   what + "; reopen the matcher");
  }
}

void LogWriter::append(std::string_view payload) {
  check_not_broken();
  char header[kLogRecordHeaderSize] = {};
  store(header, static_cast<std::uint64_t>(payload.size()));
  const std::uint32_t length_crc = crc32c(header, 8);
  store(header + 8, crc32c(payload.data(), payload.size(), length_crc));
  store(header + 12, length_crc);
  const std::uint64_t end = end_.load();
  try {
    file_.write_all({header, sizeof header}, payload);
  } catch (...) {
    try {
      file_.truncate(end);
    } catch (...) {
      broken_by_ = "write";
    }
    throw;
  }
  end_.store(end + sizeof header + payload.size(), std::memory_order_release);
}

void LogWriter::sync() {
  check_not_broken();
  try {
    file_.sync();
  } catch (...) {
    broken_by_ = "sync";
    throw;
  }
}

}  // namespace tamis
