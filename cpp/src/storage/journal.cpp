#include "storage/journal.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "storage/crc32c.hpp"

namespace tamis {
namespace {

constexpr auto kGroupInterval = std::chrono::milliseconds(10);
// A checkpoint pays when the logs, which are read and parsed on opening (some 60 MB/s), have grown
// to a quarter of what it would write; and never below this, a tenth of a second.
constexpr std::uint64_t kMinLogBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kImageBytesPerLogByte = 4;

std::string manifest_path(const std::string& directory) { return directory + "/MANIFEST"; }
std::string aside_path(const std::string& directory) { return directory + "/aside"; }
std::string image_path(const std::string& directory, std::uint64_t number) {
  return directory + "/image-" + std::to_string(number) + ".tamis";
}

std::string in_hex(std::uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

std::string to_text(const JournalFile& file) {
  return " " + std::to_string(file.number) + ":" + std::to_string(file.n_bytes);
}

struct Manifest {
  Space space = Space::plane;
  std::optional<JournalFile> image;
  std::vector<JournalFile> logs;

  std::string text() const {
    std::string body = "tamis matcher\nformat 3\narity 2\nspace ";
    body += space == Space::plane ? "plane\nimage" : "earth\nimage";
    body += image ? to_text(*image) : " none";
    body += "\nlogs";
    for (const JournalFile& log : logs) body += to_text(log);
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
    if (format != "3") {
      throw StorageError(path,
                         "was written by " +
                             std::string(format == "1" || format == "2" ? "an older" : "a newer") +
                             " Tamis (format " + format + "), which this one cannot read");
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
    const auto files_of = [&](const std::string& all) {
      std::vector<JournalFile> files;
      const char* const end = all.data() + all.size();
      for (const char* at = all.data(); at < end; ++at) {
        JournalFile file;
        auto result = std::from_chars(at, end, file.number);
        if (result.ec == std::errc{} && result.ptr < end && *result.ptr == ':') {
          result = std::from_chars(result.ptr + 1, end, file.n_bytes);
        } else {
          result.ec = std::errc::invalid_argument;
        }
        if (result.ec != std::errc{}) throw StorageError(path, "names a file that is no number");
        files.push_back(file);
        at = result.ptr;
      }
      return files;
    };
    if (const std::string image = value_of("image"); image != "none") {
      const std::vector<JournalFile> files = files_of(image);
      if (files.size() != 1) throw StorageError(path, "names not one image");
      manifest.image = files[0];
    }
    manifest.logs = files_of(value_of("logs"));
    if (manifest.logs.empty()) throw StorageError(path, "names no log");
    return manifest;
  }
};

void check_space(const std::string& directory, const Manifest& manifest,
                 std::optional<Space> space) {
  if (!space || *space == manifest.space) return;
  throw StorageError(directory, std::string("its space is ") +
                                    (manifest.space == Space::plane ? "plane" : "earth") +
                                    ", and another was asked for");
}

// Visits what the manifest names, and says how each log ended.
std::vector<LogSummary> visit(const std::string& directory, const Manifest& manifest,
                              const Journal::Visitor& visitor) {
  visitor.begin(manifest.space);
  if (manifest.image) {
    visitor.image(image_path(directory, manifest.image->number), manifest.image->n_bytes);
  }
  std::vector<LogSummary> summaries;
  for (std::size_t at = 0; at < manifest.logs.size(); ++at) {
    const JournalFile& log = manifest.logs[at];
    const std::string path = log_path(directory, log.number);
    const LogSummary summary =
        read_log(path, [&](const LogRecord& record) { visitor.record(record, path); });
    const std::uint64_t end = summary.end_of_whole_records;
    if (end > 0 && summary.sequence != log.number) {
      throw StorageError(
          path, "is another log: its header has the number " + std::to_string(summary.sequence));
    }
    if (end < log.n_bytes) {
      throw StorageError(path, "is damaged: " + std::to_string(log.n_bytes) +
                                   " bytes are known to have been there, and only " +
                                   std::to_string(end) + " are whole");
    }
    if (summary.has_torn_tail && at + 1 < manifest.logs.size()) {
      // The manifest named the next log, and the writer was told that this had failed: it went on
      // here. Then the next ones are empty, and the tail is cut as that of the last would be.
      for (std::size_t later = at + 1; later < manifest.logs.size(); ++later) {
        const std::string later_path = log_path(directory, manifest.logs[later].number);
        if (read_log(later_path, nullptr).n_records > 0) {
          throw StorageError(path, "is damaged: its end is missing, and later logs follow it");
        }
      }
    }
    summaries.push_back(summary);
  }
  return summaries;
}

}  // namespace

Journal::Journal(const std::string& directory, SyncPolicy policy)
    : directory_(directory), policy_(policy), lock_(directory) {}

std::unique_ptr<Journal> Journal::open(const std::string& directory, bool create, SyncPolicy policy,
                                       std::optional<Space> space, const Visitor& visitor) {
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
    visitor.begin(journal->space_);
    journal->logs_ = {{1, kLogHeaderSize}};
    journal->writer_ = LogWriter::create(directory, 1);
    journal->write_manifest(std::nullopt, journal->logs_);
  } else {
    const Manifest manifest = Manifest::read(manifest_path(directory));
    check_space(directory, manifest, space);
    journal->space_ = manifest.space;
    journal->image_ = manifest.image;
    journal->logs_ = manifest.logs;
    journal->remove_strays();
    const std::vector<LogSummary> summaries = visit(directory, manifest, visitor);
    for (std::size_t at = 0; at < summaries.size(); ++at) {
      const std::uint64_t end = summaries[at].end_of_whole_records;
      const bool is_last = at + 1 == summaries.size();
      if (is_last || summaries[at].has_torn_tail) {
        journal->writer_ = LogWriter::resume(directory, manifest.logs[at].number, end);
      }
      if (!is_last) journal->n_older_bytes_ += end;
    }
  }
  if (policy == SyncPolicy::grouped) {
    journal->syncer_ = std::thread([raw = journal.get()] { raw->run_syncer(); });
  }
  return journal;
}

JournalSizes Journal::read(const std::string& directory, std::optional<Space> space,
                           const Visitor& visitor) {
  constexpr int kMaxTries = 100;
  if (!exists(manifest_path(directory))) {
    throw StorageError(directory, "is no matcher: there is no MANIFEST");
  }
  for (int n_tries = 1;; ++n_tries) {
    const std::string before = read_file(manifest_path(directory));
    try {
      const Manifest manifest = Manifest::read(manifest_path(directory));
      check_space(directory, manifest, space);
      JournalSizes sizes;
      for (const LogSummary& log : visit(directory, manifest, visitor)) {
        ++sizes.n_logs;
        sizes.n_log_bytes += log.end_of_whole_records;
      }
      if (manifest.image) sizes.n_image_bytes = manifest.image->n_bytes;
      return sizes;
    } catch (const StorageError& error) {
      // A writer that finished a checkpoint meanwhile has removed what the old manifest names.
      if (error.code() != ENOENT || n_tries == kMaxTries ||
          read_file(manifest_path(directory)) == before) {
        throw;
      }
    }
  }
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
  const std::uint64_t n_image_bytes = image_ ? image_->n_bytes : 0;
  return !checkpoint_ &&
         n_older_bytes_ + writer_->end() >
             n_put_off_bytes_ + std::max(kMinLogBytes, n_image_bytes / kImageBytesPerLogByte);
}

void Journal::rotate() {
  check_owner();
  const std::lock_guard lock(mutex_);
  const std::uint64_t last = logs_.back().number;
  writer_->sync();  // a log before the last has no torn tail
  std::vector<JournalFile> logs = logs_;
  logs.back().n_bytes = writer_->end();
  logs.push_back({last + 2, kLogHeaderSize});
  std::shared_ptr<LogWriter> next = LogWriter::create(directory_, last + 2);
  write_manifest(image_, logs);
  n_older_bytes_ += writer_->end();
  logs_ = std::move(logs);
  writer_ = std::move(next);
  checkpoint_ = last + 1;
}

void Journal::write_checkpoint(const WriteImage& write) {
  check_owner();
  JournalFile image;
  {
    const std::lock_guard lock(mutex_);
    image.number = checkpoint_.value();
  }
  try {
    make_directory(aside_path(directory_));
    const std::string aside = image_path(aside_path(directory_), image.number);
    ImageWriter writer(aside);
    write(writer);
    writer.finish();
    image.n_bytes = writer.n_bytes();
    rename_file(aside, image_path(directory_, image.number));
    sync_directory(directory_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    checkpoint_ = std::nullopt;  // the logs so far still give the state
    throw;
  }
  const std::lock_guard lock(mutex_);
  checkpoint_ = std::nullopt;
  const std::vector<JournalFile> logs = {logs_.back()};
  write_manifest(image, logs);
  const std::vector<JournalFile> old_logs = std::exchange(logs_, logs);
  const std::optional<JournalFile> old_image = std::exchange(image_, image);
  n_older_bytes_ = n_put_off_bytes_ = 0;
  for (const JournalFile& log : old_logs) {
    if (log.number != logs.back().number) remove_file(log_path(directory_, log.number));
  }
  if (old_image) remove_file(image_path(directory_, old_image->number));
}

void Journal::put_off_checkpoint() {
  const std::lock_guard lock(mutex_);
  checkpoint_ = std::nullopt;
  n_put_off_bytes_ = n_older_bytes_ + writer_->end();
}

void Journal::write_manifest(const std::optional<JournalFile>& image,
                             const std::vector<JournalFile>& logs) const {
  write_file_atomically(manifest_path(directory_), Manifest{space_, image, logs}.text());
}

// Logs and images that no manifest names, and what a checkpoint that was cut short has left.
void Journal::remove_strays() const {
  std::vector<std::string> named;
  for (const JournalFile& log : logs_) named.push_back(log_path(directory_, log.number));
  if (image_) named.push_back(image_path(directory_, image_->number));
  // <prefix><digits><suffix>, and nothing that a person may have put there.
  const auto is_ours = [](std::string_view name, std::string_view prefix, std::string_view suffix) {
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) return false;
    if (name.size() <= prefix.size() + suffix.size()) return false;
    return name.substr(prefix.size(), name.size() - prefix.size() - suffix.size())
               .find_first_not_of("0123456789") == std::string_view::npos;
  };
  for (const std::string& name : list_directory(directory_)) {
    const std::string path = directory_ + "/" + name;
    if ((is_ours(name, "log-", ".wal") || is_ours(name, "image-", ".tamis")) &&
        std::find(named.begin(), named.end(), path) == named.end()) {
      remove_file(path);
    }
  }
  const std::string aside = aside_path(directory_);
  if (exists(aside)) {
    for (const std::string& name : list_directory(aside)) remove_file(aside + "/" + name);
  }
}

JournalSizes Journal::sizes() const {
  const std::lock_guard lock(mutex_);
  return {logs_.size(), n_older_bytes_ + writer_->end(), image_ ? image_->n_bytes : 0};
}

void Journal::save(const std::string& directory, Space space, const WriteImage& write) {
  if (exists(directory)) {
    throw StorageError(directory, "exists already; save to a new name");
  }
  const std::string aside = directory + ".tmp";
  if (exists(aside)) {
    // A save that was cut short leaves its files there; others' are not ours to remove.
    const std::vector<std::string> names = list_directory(aside);
    for (const std::string& name : names) {
      if (name != "image-1.tamis" && name != "log-2.wal" && name != "MANIFEST" &&
          name != "MANIFEST.tmp") {
        throw StorageError(aside, "is needed for saving and holds " + name +
                                      "; move it away, or save under another name");
      }
    }
    for (const std::string& name : names) remove_file(aside + "/" + name);
  }
  make_directory(aside);
  ImageWriter image(image_path(aside, 1));
  write(image);
  image.finish();
  LogWriter::create(aside, 2);
  write_file_atomically(
      manifest_path(aside),
      Manifest{space, JournalFile{1, image.n_bytes()}, {{2, kLogHeaderSize}}}.text());
  rename_file(aside, directory);
  sync_directory(parent_directory(directory));
}

}  // namespace tamis
