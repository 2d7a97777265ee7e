// The write-ahead log: what is read back after every kind of cut, flip, failure and death.
#include "storage/log.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>

#include "check.hpp"
#include "storage/crc32c.hpp"

namespace tamis {
namespace {

using Action = FaultPlan::Action;

class ScratchDirectory {
 public:
  ScratchDirectory() {
    // In memory where there is such a place: thousands of syncs take seconds on a disk.
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = ::access(memory.c_str(), W_OK) == 0;
    std::string path =
        (has_memory ? memory : std::filesystem::temp_directory_path()) / "tamis-log-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw StorageError(path, "cannot make", errno);
    path_ = path;
  }
  ~ScratchDirectory() {
    clear_fault();
    std::filesystem::remove_all(path_);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A log's records, encoded again: what a reader saw, comparable after the visit.
struct Seen {
  LogSummary summary;
  std::vector<std::string> payloads;
};

Seen read_all(const std::string& path) {
  Seen seen;
  seen.summary = read_log(path, [&](const LogRecord& record) {
    seen.payloads.push_back(
        record.kind == LogRecord::Kind::subscribe ? encode_subscribe(record.rows)
        : record.kind == LogRecord::Kind::move    ? encode_move(record.moves)
                                                  : encode_unsubscribe(record.ids));
  });
  CHECK_EQ(seen.summary.n_records, seen.payloads.size());
  return seen;
}

void put_file(const std::string& path, std::string_view bytes) {
  File::create(path, false).write_all(bytes);
}

bool is_prefix(const std::vector<std::string>& part, const std::vector<std::string>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

std::vector<std::string> some_payloads() {
  const std::vector<LogSubscribe> strings = {
      {IdView::of("s1"), "temp > 30 AND wind < 2", IdView::of("alice")}, {IdView::of(""), "", {}}};
  const std::vector<LogSubscribe> integers = {
      {IdView::of(std::int64_t{7}), "a = 'b'", IdView::of(std::int64_t{-1})}};
  const std::vector<IdView> ids = {IdView::of("s1"), IdView::of("")};
  const std::vector<LogMove> moves = {{IdView::of("s1"), 0.5, -1e300, std::nullopt},
                                      {IdView::of(""), 1, 2, 300}};
  return {encode_subscribe(strings), encode_unsubscribe(ids), encode_subscribe(integers),
          encode_move(moves), encode_unsubscribe({})};
}

std::string make_log(const std::string& directory, const std::vector<std::string>& payloads) {
  const auto log = LogWriter::create(directory, 5);
  for (const std::string& payload : payloads) log->append(payload);
  return log->path();
}

TEST(log_records_round_trip) {
  const ScratchDirectory scratch;
  const std::string huge(3'000'000, 'p');
  const std::vector<LogSubscribe> strings = {
      {IdView::of("s1"), "temp > 30", IdView::of("alice")},
      {IdView::of(""), "", IdView::of("")},
      {IdView::of(std::string_view("\0\xFF", 2)), huge, std::nullopt}};
  const std::vector<LogSubscribe> integers = {
      {IdView::of(std::numeric_limits<std::int64_t>::min()), "x", IdView::of(std::int64_t{0})},
      {IdView::of(std::numeric_limits<std::int64_t>::max()), "y", IdView::of("bob")}};
  const std::vector<IdView> ids = {IdView::of(std::int64_t{-3}), IdView::of("three")};
  {
    const auto log = LogWriter::create(scratch.path(), 12);
    CHECK_EQ(log->path(), scratch.path() + "/log-12.wal");
    CHECK_EQ(log->end(), kLogHeaderSize);
    CHECK_EQ(log->sequence(), 12u);
    log->append(encode_subscribe(strings));
    log->append(encode_subscribe(integers));
    log->append(encode_subscribe({}));
    log->append(encode_unsubscribe(ids));
    log->append(encode_unsubscribe({}));
    log->sync();
    CHECK_EQ(log->end(), std::filesystem::file_size(log->path()));
  }
  int n_visits = 0;
  std::uint64_t last_offset = 0;
  const auto visit = [&](const LogRecord& record) {
    const bool is_subscribe = n_visits < 3;
    CHECK(record.kind ==
          (is_subscribe ? LogRecord::Kind::subscribe : LogRecord::Kind::unsubscribe));
    CHECK(record.rows == (n_visits == 0   ? strings
                          : n_visits == 1 ? integers
                                          : std::vector<LogSubscribe>{}));
    CHECK(record.ids == (n_visits == 3 ? ids : std::vector<IdView>{}));
    CHECK(record.offset > last_offset);
    last_offset = record.offset;
    ++n_visits;
  };
  const LogSummary summary = read_log(log_path(scratch.path(), 12), visit);
  CHECK_EQ(n_visits, 5);
  CHECK_EQ(summary.sequence, 12u);
  CHECK_EQ(summary.n_records, 5u);
  CHECK(!summary.has_torn_tail);
  CHECK_EQ(summary.end_of_whole_records, std::filesystem::file_size(log_path(scratch.path(), 12)));
  CHECK_EQ(read_log(log_path(scratch.path(), 12), nullptr).n_records, 5u);
  const std::vector<IdView> untyped(1);
  CHECK_THROWS(encode_unsubscribe(untyped), ArgumentError, "must be an integer or a string");
}

TEST(log_records_of_moves_round_trip) {
  const ScratchDirectory scratch;
  const std::vector<LogMove> moves = {
      {IdView::of(std::int64_t{-1}), -0.0, 5e-324, std::nullopt},
      {IdView::of(std::int64_t{7}), 1e308, 0.1, 0},
      {IdView::of("s"), 2, 3, std::numeric_limits<std::uint32_t>::max()}};
  const std::string path = make_log(scratch.path(), {encode_move(moves), encode_move({})});
  std::size_t n_visits = 0;
  read_log(path, [&](const LogRecord& record) {
    CHECK(record.kind == LogRecord::Kind::move);
    CHECK(record.moves == (n_visits++ == 0 ? moves : std::vector<LogMove>{}));
  });
  CHECK_EQ(n_visits, 2u);
  // 26 bytes a row with an integer for an id: type, 8 bytes, which area, x and y.
  CHECK_EQ(encode_move({moves.data(), 1}).size(), 2u + 26u);
  std::string cut = encode_move(moves);
  cut.pop_back();
  CHECK_THROWS(decode_record(cut, "p", 1), StorageError, "ends too early");
}

TEST(a_log_that_its_writer_shortens_can_be_read_on) {
  const ScratchDirectory scratch;
  const std::string long_text(100'000, 'p');  // pages of its own
  const LogSubscribe row{IdView::of("s1"), long_text, std::nullopt};
  const std::string path = make_log(scratch.path(), std::vector(3, encode_subscribe({&row, 1})));
  int n_visits = 0;
  const LogSummary summary = read_log(path, [&](const LogRecord& record) {
    if (++n_visits == 1) std::filesystem::resize_file(path, kLogHeaderSize);
    CHECK_EQ(record.rows[0].predicate.size(), long_text.size());
  });
  CHECK(n_visits >= 1);
  CHECK_EQ(summary.n_records, static_cast<std::uint64_t>(n_visits));
}

TEST(log_layout_is_the_documented_one) {
  const ScratchDirectory scratch;
  const std::vector<LogSubscribe> rows = {{IdView::of("s1"), "a", IdView::of(std::int64_t{258})}};
  const std::string payload(
      "\x01\x01\x02\x02s1\x01"
      "a\x01\x02\x01\0\0\0\0\0\0",
      17);
  CHECK_EQ(encode_subscribe(rows), payload);
  const std::string bytes = read_file(make_log(scratch.path(), {payload}));
  CHECK_EQ(bytes.size(), 32u + 16u + 17u);
  CHECK_EQ(bytes.substr(0, 28),
           std::string("TAMISLOG\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0", 28));
  std::uint32_t crc;
  std::memcpy(&crc, bytes.data() + 28, 4);
  CHECK_EQ(crc, crc32c_by_table(bytes.data(), 28));
  CHECK_EQ(bytes.substr(32, 8), std::string("\x11\0\0\0\0\0\0\0", 8));
  std::memcpy(&crc, bytes.data() + 40, 4);
  CHECK_EQ(crc, crc32c_by_table((bytes.substr(32, 8) + payload).data(), 25));
  std::memcpy(&crc, bytes.data() + 44, 4);
  CHECK_EQ(crc, crc32c_by_table(bytes.data() + 32, 8));
  CHECK_EQ(bytes.substr(48), payload);
}

TEST(a_log_cut_at_any_byte_is_its_whole_records) {
  const ScratchDirectory scratch;
  const std::vector<std::string> payloads = some_payloads();
  const std::string path = make_log(scratch.path(), payloads);
  const std::string bytes = read_file(path);
  std::vector<std::size_t> ends = {kLogHeaderSize};
  for (const std::string& payload : payloads) {
    ends.push_back(ends.back() + kLogRecordHeaderSize + payload.size());
  }
  CHECK_EQ(ends.back(), bytes.size());
  // Cut short, or (as after the death of a machine) with zeros in place of what is missing.
  for (const std::size_t n_zeros : {0, 1, 15, 16, 17, 100, 4096}) {
    for (std::size_t n_bytes = 0; n_bytes <= bytes.size(); ++n_bytes) {
      if (n_zeros > 0 && n_bytes > 0 && n_bytes < kLogHeaderSize) continue;  // a damaged header
      put_file(path, bytes.substr(0, n_bytes) + std::string(n_zeros, '\0'));
      const Seen seen = read_all(path);
      CHECK(is_prefix(seen.payloads, payloads));
      std::size_t n_whole = 0;
      while (n_whole < payloads.size() && ends[n_whole + 1] <= n_bytes) ++n_whole;
      // A record that ends in zeros is whole when zeros stand for its cut end.
      const std::size_t most = n_zeros == 0 ? n_whole : payloads.size();
      CHECK(seen.payloads.size() >= n_whole && seen.payloads.size() <= most);
      const std::size_t end = n_bytes < kLogHeaderSize ? 0 : ends[seen.payloads.size()];
      CHECK_EQ(seen.summary.end_of_whole_records, end);
      CHECK_EQ(seen.summary.has_torn_tail, end == 0 || end < n_bytes + n_zeros);
      CHECK_EQ(seen.summary.sequence, end == 0 ? 0u : 5u);
      // And it can be gone on with.
      if (n_zeros == 0 || n_zeros == 17) {
        const auto log = LogWriter::resume(scratch.path(), 5, end);
        log->append(payloads[0]);
        std::vector<std::string> expected = seen.payloads;
        expected.push_back(payloads[0]);
        const Seen after = read_all(path);
        CHECK(after.payloads == expected);
        CHECK(!after.summary.has_torn_tail);
        CHECK_EQ(after.summary.end_of_whole_records, log->end());
      }
    }
  }
}

TEST(a_log_with_any_bit_flipped_is_an_error_or_a_prefix) {
  const ScratchDirectory scratch;
  const std::vector<std::string> payloads = some_payloads();
  const std::string path = make_log(scratch.path(), payloads);
  const std::string bytes = read_file(path);
  const std::size_t end_of_first = kLogHeaderSize + kLogRecordHeaderSize + payloads[0].size();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    put_file(path, flipped);
    bool is_error = false;
    try {
      const Seen seen = read_all(path);
      CHECK(is_prefix(seen.payloads, payloads));
      CHECK(seen.payloads.size() < payloads.size());
      CHECK(seen.summary.has_torn_tail);
    } catch (const StorageError& error) {
      is_error = true;
      CHECK(std::string_view(error.what()).starts_with(path));
    }
    const std::size_t byte = bit / 8;
    if (byte < kLogHeaderSize) CHECK(is_error);
    if (byte >= kLogHeaderSize + 8 && byte < end_of_first) CHECK(is_error);
  }
}

TEST(damage_before_whole_records_names_the_file_and_the_place) {
  const ScratchDirectory scratch;
  const std::vector<std::string> payloads = some_payloads();
  const std::string path = make_log(scratch.path(), payloads);
  std::string bytes = read_file(path);
  bytes[kLogHeaderSize + kLogRecordHeaderSize + 5] ^= 1;
  put_file(path, bytes);
  CHECK_THROWS(read_all(path), StorageError, path + ": the record at byte 32 is damaged");
}

TEST(logs_of_others_and_of_newer_versions_are_refused) {
  const ScratchDirectory scratch;
  const std::string path = make_log(scratch.path(), some_payloads());
  const std::string bytes = read_file(path);
  const auto with = [&](std::size_t at, char byte, bool has_right_checksum) {
    std::string changed = bytes;
    changed[at] = byte;
    const std::uint32_t crc = crc32c(changed.data(), 28);
    if (has_right_checksum) std::memcpy(changed.data() + 28, &crc, 4);
    put_file(path, changed);
  };
  with(0, 'X', true);
  CHECK_THROWS(read_all(path), StorageError, path + ": is not a Tamis log");
  with(8, 2, true);
  CHECK_THROWS(read_all(path), StorageError, "was written by a newer Tamis (format 2)");
  with(8, 0, true);
  CHECK_THROWS(read_all(path), StorageError, "does not know");
  with(12, 1, true);
  CHECK_THROWS(read_all(path), StorageError, "does not know");
  with(16, 9, false);
  CHECK_THROWS(read_all(path), StorageError, "header is damaged");
  put_file(path, "id,predicate\n");
  CHECK_THROWS(read_all(path), StorageError, "is not a Tamis log");
  put_file(path, std::string(32, '\0') + bytes.substr(32));
  CHECK_THROWS(read_all(path), StorageError, "is not a Tamis log");
  put_file(path, std::string(32, '\0'));
  CHECK_EQ(read_all(path).summary.end_of_whole_records, 0u);
  CHECK_THROWS(read_all(scratch.path() + "/none"), StorageError, "No such file");
}

TEST(malformed_payloads_with_right_checksums_are_errors) {
  const ScratchDirectory scratch;
  const std::vector<std::string> payloads = some_payloads();
  std::vector<std::string> malformed = {"", "\x03", std::string("\0\0", 2), "\x01\x01",
                                        "\x02\x01\x05", std::string("\x02\x01\0", 3),
                                        "\x02\x01\x02\x7Fxy",
                                        // Counts and lengths that overflow or would allocate.
                                        "\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
                                        "\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F",
                                        "\x02\x01\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
                                        "\x02\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"};
  for (const std::string& payload : payloads) {
    for (std::size_t n_bytes = 0; n_bytes < payload.size(); ++n_bytes) {
      malformed.push_back(payload.substr(0, n_bytes));
    }
    malformed.push_back(payload + '\0');
  }
  for (const std::string& payload : malformed) {
    CHECK_THROWS(decode_record(payload, "a.wal", 32), StorageError,
                 "a.wal: the record at byte 32 is malformed");
  }
  // Any one byte changed: no read out of bounds (the sanitizers watch), at worst other rows.
  for (const std::string& payload : payloads) {
    for (std::size_t byte_idx = 0; byte_idx < payload.size(); ++byte_idx) {
      for (int byte = 0; byte < 256; ++byte) {
        std::vector<char> exact(payload.begin(), payload.end());
        exact[byte_idx] = static_cast<char>(byte);
        try {
          decode_record({exact.data(), exact.size()}, "a.wal", 32);
        } catch (const StorageError&) {
        }
      }
    }
  }
  LogWriter::create(scratch.path(), 1)->append("\x09");
  CHECK_THROWS(read_all(log_path(scratch.path(), 1)), StorageError, "its kind is 9");
}

TEST(a_log_with_changes_is_not_created_again) {
  const ScratchDirectory scratch;
  const std::string path = make_log(scratch.path(), some_payloads());
  CHECK_THROWS(LogWriter::create(scratch.path(), 5), StorageError, "holds changes");
  CHECK_THROWS(LogWriter::resume(scratch.path(), 5, 1'000'000), StorageError,
               "cannot go on at byte 1000000");
  put_file(path, "TAMI");
  CHECK_EQ(LogWriter::create(scratch.path(), 5)->end(), kLogHeaderSize);
  CHECK_EQ(LogWriter::create(scratch.path(), 5)->end(), kLogHeaderSize);
}

// Creates a log, then appends and syncs each payload; calls `acknowledge` after each append.
template <class Acknowledge>
void write_log(const std::string& directory, const std::vector<std::string>& payloads,
               Acknowledge acknowledge) {
  const auto log = LogWriter::create(directory, 5);
  for (const std::string& payload : payloads) {
    log->append(payload);
    acknowledge();
    log->sync();
  }
}

TEST(a_failed_append_leaves_the_log_as_it_was) {
  const std::vector<std::string> payloads = some_payloads();
  for (const Action action : {Action::no_space, Action::io_error}) {
    for (std::uint64_t step = 1; step <= payloads.size(); ++step) {
      const ScratchDirectory scratch;
      const auto log = LogWriter::create(scratch.path(), 5);
      std::vector<std::string> expected;
      set_fault(step, action);
      for (const std::string& payload : payloads) {
        const std::uint64_t end = log->end();
        try {
          log->append(payload);
          expected.push_back(payload);
        } catch (const StorageError& error) {
          CHECK_EQ(error.code(), action == Action::no_space ? ENOSPC : EIO);
          CHECK_EQ(log->end(), end);
          CHECK_EQ(std::filesystem::file_size(log->path()), end);
        }
      }
      clear_fault();
      CHECK(!log->is_broken());
      CHECK_EQ(expected.size(), payloads.size() - 1);
      log->sync();
      const Seen seen = read_all(log->path());
      CHECK(seen.payloads == expected);
      CHECK(!seen.summary.has_torn_tail);
    }
  }
}

TEST(a_failure_that_cannot_be_undone_breaks_the_writer) {
  const std::vector<std::string> payloads = some_payloads();
  const ScratchDirectory scratch;
  auto log = LogWriter::create(scratch.path(), 5);
  log->append(payloads[0]);
  set_fault(1, Action::no_space, 2);  // the write and the truncation
  CHECK_THROWS(log->append(payloads[1]), StorageError, "cannot write ");
  clear_fault();
  CHECK(log->is_broken());
  CHECK_THROWS(log->append(payloads[1]), StorageError,
               "the log is in an unknown state after a failed write; reopen the matcher");
  CHECK_THROWS(log->sync(), StorageError, "reopen the matcher");
  const Seen seen = read_all(log->path());
  CHECK_EQ(seen.payloads.size(), 1u);
  CHECK(seen.summary.has_torn_tail);

  log = LogWriter::resume(scratch.path(), 5, seen.summary.end_of_whole_records);
  log->append(payloads[1]);
  set_fault(1, Action::io_error);
  CHECK_THROWS(log->sync(), StorageError, "cannot sync: ");
  clear_fault();
  CHECK_THROWS(log->append(payloads[2]), StorageError,
               "the log is in an unknown state after a failed sync; reopen the matcher");
}

TEST(a_log_that_fails_at_any_operation_can_be_gone_on_with) {
  const std::vector<std::string> payloads = some_payloads();
  for (const Action action : {Action::no_space, Action::io_error}) {
    for (const std::uint64_t n_times : {1u, 1000u}) {
      bool has_failed = true;
      for (std::uint64_t step = 1; has_failed; ++step) {
        const ScratchDirectory scratch;
        std::size_t n_acknowledged = 0;
        set_fault(step, action, n_times);
        try {
          write_log(scratch.path(), payloads, [&] { ++n_acknowledged; });
          has_failed = false;
        } catch (const StorageError&) {
        }
        clear_fault();
        const std::string path = log_path(scratch.path(), 5);
        if (!exists(path)) continue;
        const Seen seen = read_all(path);
        CHECK(is_prefix(seen.payloads, payloads));
        CHECK_EQ(seen.payloads.size(), n_acknowledged);
        LogWriter::resume(scratch.path(), 5, seen.summary.end_of_whole_records)
            ->append(payloads[0]);
        CHECK_EQ(read_all(path).payloads.size(), n_acknowledged + 1);
      }
    }
  }
}

TEST(a_short_write_goes_on) {
  const std::vector<std::string> payloads = some_payloads();
  const ScratchDirectory scratch;
  set_fault(1, Action::short_write, 1'000'000);
  write_log(scratch.path(), payloads, [] {});
  clear_fault();
  CHECK(read_all(log_path(scratch.path(), 5)).payloads == payloads);
}

TEST(a_process_killed_at_any_operation_loses_no_acknowledged_change) {
  const std::vector<std::string> payloads = some_payloads();
  for (const Action action : {Action::kill, Action::kill_midway}) {
    bool is_killed = true;
    std::uint64_t step = 1;
    for (; is_killed; ++step) {
      const ScratchDirectory scratch;
      int acknowledged[2];
      CHECK_EQ(::pipe(acknowledged), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        set_fault(step, action);
        try {
          write_log(scratch.path(), payloads, [&] {
            if (::write(acknowledged[1], "x", 1) != 1) ::_exit(98);
          });
        } catch (...) {
          ::_exit(99);
        }
        ::_exit(0);
      }
      ::close(acknowledged[1]);
      std::size_t n_acknowledged = 0;
      for (char byte; ::read(acknowledged[0], &byte, 1) == 1;) ++n_acknowledged;
      ::close(acknowledged[0]);
      int status = 0;
      ::waitpid(pid, &status, 0);
      is_killed = WIFEXITED(status) && WEXITSTATUS(status) == 137;
      CHECK(is_killed || status == 0);
      const std::string path = log_path(scratch.path(), 5);
      if (!exists(path)) {
        CHECK_EQ(step, 1u);
        continue;
      }
      Seen seen = read_all(path);
      CHECK(is_prefix(seen.payloads, payloads));
      CHECK_EQ(seen.payloads.size(), n_acknowledged);
      // Recovery, itself killed at each of its operations, then done.
      for (std::uint64_t recovery_step = 1; recovery_step <= 4; ++recovery_step) {
        const pid_t recovery = ::fork();
        if (recovery == 0) {
          set_fault(recovery_step, action);
          LogWriter::resume(scratch.path(), 5, seen.summary.end_of_whole_records);
          ::_exit(0);
        }
        ::waitpid(recovery, &status, 0);
        CHECK(WIFEXITED(status));
        seen = read_all(path);
        CHECK_EQ(seen.payloads.size(), n_acknowledged);
      }
      LogWriter::resume(scratch.path(), 5, seen.summary.end_of_whole_records)->append(payloads[1]);
      seen = read_all(path);
      CHECK_EQ(seen.payloads.size(), n_acknowledged + 1);
      CHECK_EQ(seen.payloads.back(), payloads[1]);
      CHECK(!seen.summary.has_torn_tail);
    }
    CHECK_EQ(step, 4 + 2 * payloads.size() + 2);  // creation, appends and syncs, one that lives
  }
}

}  // namespace
}  // namespace tamis
