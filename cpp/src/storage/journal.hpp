// A durable matcher's directory: its newest image, and the logs of what changed since.
//
//     LOCK             held by the one process that writes
//     MANIFEST         text: format, space, the image with its length, the logs to replay in order
//                      with the least length of each, a checksum
//     image-<n>.tamis  a state of the matcher, mapped
//     log-<n>.wal      changes; the last one grows
//
// A checkpoint is a new image. It is written aside while changes go to the next log; the manifest
// names it when it is whole, so at every moment the image and the logs that the manifest names
// give the state.
//
//     image 1, logs 2     rotate:  image 1, logs 2 4     finished:  image 3, logs 4
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

#include "storage/image.hpp"
#include "storage/log.hpp"
#include "tamis/space.hpp"

namespace tamis {

// When a change is synced to the disk: before its call returns, within kGroupInterval after it, or
// when the system likes. In each case it survives the death of the process.
enum class SyncPolicy : std::uint8_t { each, grouped, none };

// A file that the manifest names, and how many bytes of it are known to be durable.
struct JournalFile {
  std::uint64_t number = 0;
  std::uint64_t n_bytes = 0;
};

// What a directory holds.
struct JournalSizes {
  std::size_t n_logs = 0;
  std::uint64_t n_log_bytes = 0, n_image_bytes = 0;
};

class Journal {
 public:
  // Hears what is in a directory, in this order. `begin` comes again if it must all be forgotten.
  struct Visitor {
    std::function<void(Space)> begin;
    std::function<void(const std::string& path, std::uint64_t n_bytes)> image;
    std::function<void(const LogRecord&, const std::string& path)> record;
  };
  // Opens the directory for writing. Without `create`, a directory without a manifest is an error;
  // with it, one is made if there is none (`space` is plane by default). A `space` other than that
  // of the manifest is an error.
  static std::unique_ptr<Journal> open(const std::string& directory, bool create, SyncPolicy policy,
                                       std::optional<Space> space, const Visitor& visitor);
  // Reads the directory, also while another process writes it.
  static JournalSizes read(const std::string& directory, std::optional<Space> space,
                           const Visitor& visitor);
  // Writes a directory that holds an image and nothing else. It must not exist yet.
  using WriteImage = std::function<void(ImageWriter&)>;
  static void save(const std::string& directory, Space space, const WriteImage& write);

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
  void write_checkpoint(const WriteImage& write);
  // After a failure: not again before the logs have grown by as much once more.
  void put_off_checkpoint();

  JournalSizes sizes() const;

 private:
  Journal(const std::string& directory, SyncPolicy policy);
  void write_manifest(const std::optional<JournalFile>& image,
                      const std::vector<JournalFile>& logs) const;
  void remove_strays() const;
  void check_owner() const;
  void run_syncer();

  std::string directory_;
  SyncPolicy policy_;
  DirectoryLock lock_;
  Space space_ = Space::plane;

  mutable std::mutex mutex_;  // of all below
  std::optional<JournalFile> image_;
  std::vector<JournalFile> logs_;  // as in the manifest, the last is writer_'s
  std::shared_ptr<LogWriter> writer_;
  std::uint64_t n_older_bytes_ = 0;          // of the logs before the last
  std::uint64_t n_put_off_bytes_ = 0;        // that the logs had when a checkpoint failed
  std::optional<std::uint64_t> checkpoint_;  // the number that is reserved for the one under way
  std::thread syncer_;
  std::condition_variable wake_syncer_;
  bool is_dirty_ = false, is_closing_ = false;
};

}  // namespace tamis
