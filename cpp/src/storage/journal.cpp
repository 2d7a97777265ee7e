#include "storage/journal.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "storage/crc32c.hpp"

namespace tamis {
namespace {

constexpr auto kGroupInterval = std::chrono::milliseconds(10);
// A checkpoint pays when what it saves a reader outweighs writing all that lives.
constexpr std::uint64_t kMinLogBytes = std::uint64_t{16} << 20;

std::string manifest_path(const std::string& directory) { return directory + "/MANIFEST"; }
std::string aside_path(const std::string& directory) { return directory + "/aside"; }

std::string in_hex(std::uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

struct Manifest {
  Space space = Space::plane;
  std::vector<JournalLog> logs;

  std::string text() const {
    std::string body = "tamis matcher\nformat 1\narity 2\nspace ";
    body += space == Space::plane ? "plane\nlogs" : "earth\nlogs";
    for (const JournalLog& log : logs) {
      body += " " + std::to_string(log.number) + ":" + std::to_string(log.n_least_bytes);
    }
    body += "\n";
    return body + "crc32c " + in_hex(crc32c(body.data(), body.size())) + "\n";
  }

  static Manifest read(const std::string& path) {
    const std::string text = read_file(path);
    std::string_view rest = text;
    const auto next_line = [&] {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      return line;
    };
    if (next_line() != "tamis matcher") {
      throw StorageError(path, "is not the manifest of a Tamis matcher");
    }
    const auto value_of = [&](const std::string& key) {
      const std::string_view line = next_line();
      if (!line.starts_with(key + " ")) {
        throw StorageError(path, "is damaged: expected a line with " + key);
      }
      return std::string(line.substr(key.size() + 1));
    };
    const std::string format = value_of("format");
    if (format.empty() || format.find_first_not_of("0123456789") != std::string::npos) {
      throw StorageError(path, "is damaged: its format is no number");
    }
    if (format != "1") {
      throw StorageError(path, "was written by a newer Tamis (format " + format + ")");
    }
    const std::size_t body = text.rfind("crc32c ");
    if (body == std::string::npos ||
        text.substr(body) != "crc32c " + in_hex(crc32c(text.data(), body)) + "\n") {
      throw StorageError(path, "is damaged: its checksum is wrong");
    }
    if (const std::string arity = value_of("arity"); arity != "2") {
      throw StorageError(path, "has positions of " + arity + " coordinates, not of 2");
    }
    Manifest manifest;
    manifest.space = value_of("space") == "earth" ? Space::earth : Space::plane;
    const std::string logs = value_of("logs");
    const char* const end = logs.data() + logs.size();
    for (const char* at = logs.data(); at < end; ++at) {
      JournalLog log;
      auto result = std::from_chars(at, end, log.number);
      if (result.ec == std::errc{} && result.ptr < end && *result.ptr == ':') {
        result = std::from_chars(result.ptr + 1, end, log.n_least_bytes);
      } else {
        result.ec = std::errc::invalid_argument;
      }
      if (result.ec != std::errc{}) throw StorageError(path, "names a log that is no number");
      manifest.logs.push_back(log);
      at = result.ptr;
    }
    if (manifest.logs.empty()) throw StorageError(path, "names no log");
    return manifest;
  }
};

}  // namespace

Journal::Journal(const std::string& directory, SyncPolicy policy)
    : directory_(directory), policy_(policy), lock_(directory) {}

Journal::Opened Journal::open(
    const std::string& directory, bool create, SyncPolicy policy, std::optional<Space> space,
    const std::function<void(Space)>& tell_space,
    const std::function<void(const LogRecord&, const std::string& path)>& visit) {
  const bool is_new = !exists(manifest_path(directory));
  if (is_new) {
    if (!create) {
      throw StorageError(directory, "is no matcher: there is no MANIFEST; open with create=True");
    }
    make_directory(directory);
    for (const std::string& name : list_directory(directory)) {
      // LOCK and a first log may be left from a creation that was cut short.
      if (name != "LOCK" && name != "log-1.wal" && name != "MANIFEST.tmp") {
        throw StorageError(directory, "cannot become a matcher: it holds " + name);
      }
    }
  }
  std::unique_ptr<Journal> journal(new Journal(directory, policy));
  if (is_new && !exists(manifest_path(directory))) {
    journal->space_ = space.value_or(Space::plane);
    tell_space(journal->space_);
    journal->logs_ = {{1, kLogHeaderSize}};
    journal->writer_ = LogWriter::create(directory, 1);
    journal->write_manifest(journal->logs_);
  } else {
    const Manifest manifest = Manifest::read(manifest_path(directory));
    if (space && *space != manifest.space) {
      throw StorageError(directory, std::string("its space is ") +
                                        (manifest.space == Space::plane ? "plane" : "earth") +
                                        ", and another was asked for");
    }
    journal->space_ = manifest.space;
    tell_space(manifest.space);
    journal->logs_ = manifest.logs;
    journal->remove_strays();
    for (std::size_t at = 0; at < manifest.logs.size(); ++at) {
      journal->open_log(manifest.logs, at, visit);
    }
  }
  if (policy == SyncPolicy::grouped) {
    journal->syncer_ = std::thread([raw = journal.get()] { raw->run_syncer(); });
  }
  const Space opened = journal->space_;
  return {std::move(journal), opened};
}

// Replays the log at place `at`, and makes it the one that is written if it is the last.
void Journal::open_log(
    const std::vector<JournalLog>& logs, std::size_t at,
    const std::function<void(const LogRecord&, const std::string& path)>& visit) {
  const JournalLog& log = logs[at];
  const std::string path = log_path(directory_, log.number);
  const bool is_last = at + 1 == logs.size();
  const LogSummary summary = read_log(path, [&](const LogRecord& record) { visit(record, path); });
  const std::uint64_t end = summary.end_of_whole_records;
  if (end > 0 && summary.sequence != log.number) {
    throw StorageError(
        path, "is another log: its header has the number " + std::to_string(summary.sequence));
  }
  if (end < log.n_least_bytes) {
    throw StorageError(path, "is damaged: " + std::to_string(log.n_least_bytes) +
                                 " bytes are known to have been there, and only " +
                                 std::to_string(end) + " are whole");
  }
  if (is_last) {
    writer_ = LogWriter::resume(directory_, log.number, end);
  } else {
    n_older_bytes_ += end;
    if (summary.has_torn_tail) {
      // The manifest named the next log, and the writer was told that this had failed: it went on
      // here. Then the next ones are empty, and the tail is cut as that of the last would be.
      for (std::size_t later = at + 1; later < logs.size(); ++later) {
        if (read_log(log_path(directory_, logs[later].number), nullptr).n_records > 0) {
          throw StorageError(path, "is damaged: its end is missing, and later logs follow it");
        }
      }
      LogWriter::resume(directory_, log.number, end);
    }
  }
  if (at == 0) n_checkpoint_bytes_ = end;
}

Journal::~Journal() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wake_syncer_.notify_all();
  if (!lock_.is_held()) {  // a forked child: neither the thread nor the log is its own
    if (syncer_.joinable()) syncer_.detach();
    return;
  }
  if (syncer_.joinable()) syncer_.join();
  if (policy_ != SyncPolicy::none && writer_ && !writer_->is_broken()) {
    try {
      writer_->sync();
    } catch (const StorageError&) {
      // Nobody is left to tell; sync() before closing tells.
    }
  }
}

void Journal::check_owner() const {
  if (!lock_.is_held()) {
    throw StorageError(directory_,
                       "belongs to the process that opened it; after fork, change it there, or "
                       "save a snapshot for the child to open");
  }
}

void Journal::append(std::string_view payload) {
  check_owner();
  const std::lock_guard lock(mutex_);
  writer_->append(payload);
  if (policy_ == SyncPolicy::each) {
    writer_->sync();
  } else if (policy_ == SyncPolicy::grouped && !is_dirty_) {
    is_dirty_ = true;
    wake_syncer_.notify_one();
  }
}

void Journal::sync() {
  check_owner();
  std::shared_ptr<LogWriter> writer;
  {
    const std::lock_guard lock(mutex_);
    writer = writer_;
    is_dirty_ = false;
  }
  writer->sync();
}

void Journal::run_syncer() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_syncer_.wait(lock, [this] { return is_dirty_ || is_closing_; });
    if (is_closing_) return;
    wake_syncer_.wait_for(lock, kGroupInterval, [this] { return is_closing_; });
    is_dirty_ = false;
    const std::shared_ptr<LogWriter> writer = writer_;
    lock.unlock();
    try {
      writer->sync();
    } catch (const StorageError&) {
      // The writer is broken now, and the next change says so.
    }
    lock.lock();
  }
}

bool Journal::wants_checkpoint() const {
  const std::lock_guard lock(mutex_);
  return !checkpoint_ && n_older_bytes_ + writer_->end() >
                             std::max(kMinLogBytes + n_checkpoint_bytes_, 2 * n_checkpoint_bytes_);
}

void Journal::rotate() {
  check_owner();
  const std::lock_guard lock(mutex_);
  const std::uint64_t last = logs_.back().number;
  writer_->sync();  // a log before the last has no torn tail
  std::vector<JournalLog> logs = logs_;
  logs.back().n_least_bytes = writer_->end();
  logs.push_back({last + 2, kLogHeaderSize});
  std::shared_ptr<LogWriter> next = LogWriter::create(directory_, last + 2);
  write_manifest(logs);
  n_older_bytes_ += writer_->end();
  logs_ = std::move(logs);
  writer_ = std::move(next);
  checkpoint_ = last + 1;
}

void Journal::write_checkpoint(const WriteRows& write) {
  check_owner();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = checkpoint_.value();
  }
  std::uint64_t n_bytes = 0;
  try {
    make_directory(aside_path(directory_));
    const std::unique_ptr<LogWriter> aside = LogWriter::create(aside_path(directory_), number);
    write(*aside);
    aside->sync();
    n_bytes = aside->end();
    rename_file(log_path(aside_path(directory_), number), log_path(directory_, number));
    sync_directory(directory_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    checkpoint_ = std::nullopt;  // the logs so far still give the state
    throw;
  }
  const std::lock_guard lock(mutex_);
  checkpoint_ = std::nullopt;
  const std::vector<JournalLog> logs = {{number, n_bytes}, logs_.back()};
  write_manifest(logs);
  const std::vector<JournalLog> old = std::exchange(logs_, logs);
  n_older_bytes_ = n_bytes;
  n_checkpoint_bytes_ = n_bytes;
  for (const JournalLog& log : old) {
    if (log.number != logs.back().number) remove_file(log_path(directory_, log.number));
  }
}

void Journal::put_off_checkpoint() {
  const std::lock_guard lock(mutex_);
  checkpoint_ = std::nullopt;
  n_checkpoint_bytes_ = n_older_bytes_ + writer_->end();
}

void Journal::write_manifest(const std::vector<JournalLog>& logs) const {
  write_file_atomically(manifest_path(directory_), Manifest{space_, logs}.text());
}

// Logs that no manifest names, and what a checkpoint that was cut short has left.
void Journal::remove_strays() const {
  const auto is_named = [&](const std::string& name) {
    return std::any_of(logs_.begin(), logs_.end(), [&](const JournalLog& log) {
      return log_path(directory_, log.number) == directory_ + "/" + name;
    });
  };
  // log-<digits>.wal, and nothing that a person may have put there.
  const auto is_log = [](std::string_view name) {
    if (!name.starts_with("log-") || !name.ends_with(".wal") || name.size() < 9) return false;
    return name.substr(4, name.size() - 8).find_first_not_of("0123456789") ==
           std::string_view::npos;
  };
  for (const std::string& name : list_directory(directory_)) {
    if (is_log(name) && !is_named(name)) {
      remove_file(directory_ + "/" + name);
    }
  }
  const std::string aside = aside_path(directory_);
  if (exists(aside)) {
    for (const std::string& name : list_directory(aside)) remove_file(aside + "/" + name);
  }
}

std::size_t Journal::n_logs() const {
  const std::lock_guard lock(mutex_);
  return logs_.size();
}

std::uint64_t Journal::n_bytes() const {
  const std::lock_guard lock(mutex_);
  return n_older_bytes_ + writer_->end();
}

void Journal::save(const std::string& directory, Space space, const WriteRows& write) {
  if (exists(directory)) {
    throw StorageError(directory, "exists already; save to a new name");
  }
  const std::string aside = directory + ".tmp";
  if (exists(aside)) {
    for (const std::string& name : list_directory(aside)) remove_file(aside + "/" + name);
  }
  make_directory(aside);
  const std::unique_ptr<LogWriter> log = LogWriter::create(aside, 1);
  write(*log);
  log->sync();
  write_file_atomically(manifest_path(aside), Manifest{space, {{1, log->end()}}}.text());
  rename_file(aside, directory);
  sync_directory(parent_directory(directory));
}

}  // namespace tamis
