// The write-ahead log: every change since the last checkpoint, in the order it was made.
//
// A change is one record, one write() call and one checksum, so that after a crash at any moment
// the log is its whole records and perhaps a part of one more, the torn tail, which is cut off.
//
//   header   0           8         12        16         24         28        32
//            "TAMISLOG"  version   flags     sequence   reserved   crc32c
//                        u32 = 1   u32 = 0   u64        u32 = 0    u32, of bytes 0 to 27
//
//   record   0           8         12        16
//            n_payload   crc32c    crc32c    payload, n_payload bytes; the next record follows
//            u64         u32       u32, of n_payload
//                        of n_payload and the payload
//
//   payload  kind u8, n_rows varint, then n_rows times:
//              kind 1, subscribe:    id, predicate, subscriber
//              kind 2, unsubscribe:  id
//            id, subscriber: 0 (none, subscribers only) | 1, int64 | 2, string
//            string, predicate: length varint, bytes
//
// Little endian; a varint is LEB128, 7 bits a byte, the lowest first.
//
// Torn or damaged? A bad record is the torn tail unless a whole, valid one stands right behind it,
// as its length says: then it was whole once and the file is damaged, which is an error, as going
// on would lose changes silently. So is a length whose own checksum is wrong: a write that was cut
// short leaves the beginning of a record, and zeros perhaps, but never that.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/file.hpp"
#include "tamis/id.hpp"

namespace tamis {

inline constexpr std::uint32_t kLogVersion = 1;
inline constexpr std::uint64_t kLogHeaderSize = 32;
inline constexpr std::uint64_t kLogRecordHeaderSize = 16;

std::string log_path(const std::string& directory, std::uint64_t sequence);  // log-<n>.wal

struct LogSubscribe {
  IdView id;
  std::string_view predicate;
  std::optional<IdView> subscriber;

  friend bool operator==(const LogSubscribe&, const LogSubscribe&) = default;
};

struct LogMove {
  IdView id;
  double x = 0, y = 0;
  std::optional<std::uint32_t> area;

  friend bool operator==(const LogMove&, const LogMove&) = default;
};

struct LogRecord {
  enum class Kind : std::uint8_t { subscribe = 1, unsubscribe = 2, move = 3 };

  Kind kind = Kind::subscribe;
  std::uint64_t offset = 0;        // of the record in its file
  std::vector<LogSubscribe> rows;  // of a subscribe
  std::vector<IdView> ids;         // of an unsubscribe
  std::vector<LogMove> moves;      // of a move
};

// Payloads. An id without a type is an ArgumentError; a subscriber without one is none.
std::string encode_subscribe(std::span<const LogSubscribe> rows);
std::string encode_unsubscribe(std::span<const IdView> ids);
std::string encode_move(std::span<const LogMove> rows);
// Views into `payload`. Malformed: StorageError that names `path` and `offset`.
LogRecord decode_record(std::string_view payload, const std::string& path, std::uint64_t offset);

struct LogSummary {
  std::uint64_t sequence = 0;
  std::uint64_t end_of_whole_records = 0;  // 0: the file's creation was cut short
  bool has_torn_tail = false;              // there are bytes behind that end
  std::uint64_t n_records = 0;
};

// Visits the whole records in order; what they point to lives during the visit only. Without a
// visitor it checks and counts, and does not decode. StorageError: not a log, a newer version, or
// damaged. Only the last log may have a torn tail; its reader must know which is the last.
LogSummary read_log(const std::string& path, const std::function<void(const LogRecord&)>& visit);

// Appends records. One thread appends at a time; sync(), end() and is_broken() may run beside it.
class LogWriter {
 public:
  // A new log, durable when this returns. A file of that name is replaced if it holds no record
  // (its creation was cut short), and is an error otherwise.
  static std::unique_ptr<LogWriter> create(const std::string& directory, std::uint64_t sequence);
  // Goes on with an existing log behind its first `end` bytes, as read_log() found them, and cuts
  // off the rest, durably. end = 0 creates it again.
  static std::unique_ptr<LogWriter> resume(const std::string& directory, std::uint64_t sequence,
                                           std::uint64_t end);

  // When this returns the record survives the death of the process; after sync(), also that of
  // the machine. When it throws, the log is as before, or the writer is broken.
  void append(std::string_view payload);
  // When this throws, the writer is broken: which of the records since the last sync will be
  // there after a crash is unknown.
  void sync();

  std::uint64_t end() const { return end_.load(std::memory_order_acquire); }
  std::uint64_t sequence() const { return sequence_; }
  const std::string& path() const { return file_.path(); }
  // After a failed sync, or a failed write that could not be undone: append() and sync() throw.
  bool is_broken() const { return broken_by_.load() != nullptr; }

 private:
  LogWriter(File file, std::uint64_t sequence, std::uint64_t end)
      : file_(std::move(file)), sequence_(sequence), end_(end) {}
  void check_not_broken() const;

  File file_;
  std::uint64_t sequence_;
  std::atomic<std::uint64_t> end_;
  std::atomic<const char*> broken_by_{nullptr};  // "sync", "write"
};

}  // namespace tamis
