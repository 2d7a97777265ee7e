// A durable matcher's directory: which logs there are, and the one that is written now.
//
//     LOCK          held by the one process that writes
//     MANIFEST      text: format, space, the logs to replay in order with the least length of
//                   each, a checksum
//     log-<n>.wal   changes; the last one grows
//
// A checkpoint is a log that begins anew: it holds what was live when it began, and the logs before
// it go. It is written aside while changes go to the next log; the manifest names it when it is
// whole, so at every moment the logs that the manifest names give the state.
//
//     logs 1 2          rotate:  1 2 4        finished:  3 4         (3 is the checkpoint)
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "storage/log.hpp"
#include "tamis/space.hpp"

namespace tamis {

// When a change is synced to the disk: before its call returns, within kGroupInterval after it, or
// when the system likes. In each case it survives the death of the process.
enum class SyncPolicy : std::uint8_t { each, grouped, none };

// A log that the manifest names, and how many bytes of it are known to be durable.
struct JournalLog {
  std::uint64_t number = 0;
  std::uint64_t n_least_bytes = 0;
};

class Journal {
 public:
  struct Opened {
    std::unique_ptr<Journal> journal;
    Space space;
  };
  // Opens the directory and visits every change in order. Without `create`, a directory without a
  // manifest is an error; with it, one is made if there is none (`space` is plane by default). A
  // `space` other than that of the manifest is an error; `tell_space` hears it before any change.
  static Opened open(const std::string& directory, bool create, SyncPolicy policy,
                     std::optional<Space> space, const std::function<void(Space)>& tell_space,
                     const std::function<void(const LogRecord&, const std::string& path)>& visit);
  // Writes a directory that holds the rows of `write` and nothing else. It must not exist yet.
  using WriteRows = std::function<void(LogWriter&)>;
  static void save(const std::string& directory, Space space, const WriteRows& write);

  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // One at a time. When it throws, the change has not happened; only where a sync failed
  // (SyncPolicy::each) is it unknown whether the change will be there when the directory is opened
  // again, and until then no other is taken.
  void append(std::string_view payload);
  void sync();

  // Is the log so long that a checkpoint pays? Then: rotate() at a moment between two changes, and
  // write_checkpoint() from any thread, of the state at that moment.
  bool wants_checkpoint() const;
  void rotate();
  void write_checkpoint(const WriteRows& write);
  // After a failure: not again before the logs have grown by as much once more.
  void put_off_checkpoint();

  std::size_t n_logs() const;
  std::uint64_t n_bytes() const;

 private:
  Journal(const std::string& directory, SyncPolicy policy);
  void open_log(const std::vector<JournalLog>& logs, std::size_t at,
                const std::function<void(const LogRecord&, const std::string& path)>& visit);
  void write_manifest(const std::vector<JournalLog>& logs) const;
  void remove_strays() const;
  void check_owner() const;
  void run_syncer();

  std::string directory_;
  SyncPolicy policy_;
  DirectoryLock lock_;
  Space space_ = Space::plane;

  mutable std::mutex mutex_;      // of all below
  std::vector<JournalLog> logs_;  // as in the manifest, the last is writer_'s
  std::shared_ptr<LogWriter> writer_;
  std::uint64_t n_older_bytes_ = 0;          // of the logs before the last
  std::uint64_t n_checkpoint_bytes_ = 0;     // of the first log
  std::optional<std::uint64_t> checkpoint_;  // the number that is reserved for the one under way
  std::thread syncer_;
  std::condition_variable wake_syncer_;
  bool is_dirty_ = false, is_closing_ = false;
};

}  // namespace tamis
