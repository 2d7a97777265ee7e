// Files, their faults, locks and checksums.
#include "storage/file.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "check.hpp"
#include "storage/crc32c.hpp"

namespace tamis {
namespace {

using Action = FaultPlan::Action;

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string path = std::filesystem::temp_directory_path() / "tamis-file-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw StorageError(path, "cannot make", errno);
    path_ = path;
  }
  ~ScratchDirectory() {
    clear_fault();
    std::filesystem::remove_all(path_);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Runs `work` in a forked child; its exit status.
template <class Work>
int status_of_child(Work work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = work();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(crc32c_has_the_published_values) {
  const std::string zeros(32, '\0'), ones(32, '\xFF');
  std::string up;
  for (char byte = 0; byte < 32; ++byte) up.push_back(byte);
  for (auto* checksum : {&crc32c, &crc32c_by_table}) {
    CHECK_EQ(checksum("", 0, 0), 0u);
    CHECK_EQ(checksum("123456789", 9, 0), 0xE3069283u);
    CHECK_EQ(checksum(zeros.data(), 32, 0), 0x8A9136AAu);  // RFC 3720, B.4
    CHECK_EQ(checksum(ones.data(), 32, 0), 0x62A8AB43u);
    CHECK_EQ(checksum(up.data(), 32, 0), 0x46DD794Eu);
  }
}

TEST(crc32c_of_parts_is_that_of_the_whole_and_both_ways_agree) {
  std::string text;
  for (int k = 0; k < 300; ++k) text.push_back(static_cast<char>(k * 167 + 13));
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::uint32_t whole = crc32c(text.data(), text.size());
    CHECK_EQ(crc32c(text.data() + n, text.size() - n, crc32c(text.data(), n)), whole);
    CHECK_EQ(crc32c(text.data(), n), crc32c_by_table(text.data(), n));
  }
}

TEST(files_are_written_appended_and_truncated) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "a";
  {
    File file = File::create(path, true);
    file.write_all("hello", 5);
    file.write_all(" wor", "ld");
    file.write_all("", "");
    file.write_all("", "!");
    file.sync();
    CHECK_EQ(file.size(), 12u);
    CHECK_EQ(file.path(), path);
  }
  CHECK_EQ(read_file(path), "hello world!");
  {
    File file = File::open_append(path);
    file.truncate(5);
    file.write_all(", you");
    File moved = std::move(file);
    moved.write_all("?");
  }
  CHECK_EQ(read_file(path), "hello, you?");
  CHECK_EQ(File::open_read(path).size(), 11u);
  CHECK_THROWS(File::open_read(path).write_all("x"), StorageError, "cannot write 1 bytes: ");
  CHECK_THROWS(File::create(path, true), StorageError, path + ": cannot create: File exists");
  File::create(path, false);
  CHECK_EQ(read_file(path), "");
}

TEST(storage_errors_name_the_path_the_attempt_and_the_reason) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "none";
  try {
    File::open_append(path);
    CHECK(false);
  } catch (const StorageError& error) {
    CHECK_EQ(error.code(), ENOENT);
    CHECK_EQ(std::string(error.what()),
             path + ": cannot open for writing: No such file or directory");
  }
  CHECK_EQ(std::string(StorageError("p", "is odd").what()), "p: is odd");
  CHECK_THROWS(rename_file(path, scratch / "b"), StorageError, "cannot rename to ");
  CHECK_THROWS(list_directory(path), StorageError, "cannot list");
  CHECK_THROWS(sync_directory(path), StorageError, "cannot sync the directory");
  CHECK_THROWS(read_file(path), StorageError, "cannot open");
}

TEST(names_are_made_listed_renamed_and_removed) {
  const ScratchDirectory scratch;
  const std::string directory = scratch / "d";
  CHECK(!exists(directory));
  CHECK(make_directory(directory));
  CHECK(!make_directory(directory));
  CHECK(make_directory(directory + "/e/"));
  File::create(directory + "/b", true);
  CHECK_THROWS(make_directory(directory + "/b"), StorageError, "Not a directory");
  rename_file(directory + "/b", directory + "/a");
  CHECK(list_directory(directory) == (std::vector<std::string>{"a", "e"}));
  CHECK(exists(directory + "/a"));
  CHECK(!exists(directory + "/a/x"));
  CHECK(remove_file(directory + "/a"));
  CHECK(!remove_file(directory + "/a"));
  sync_directory(directory);
  CHECK_EQ(parent_directory("a"), ".");
  CHECK_EQ(parent_directory("a/b//"), "a");
  CHECK_EQ(parent_directory("a//b"), "a");
  CHECK_EQ(parent_directory("/a"), "/");
  CHECK_EQ(parent_directory("/"), "/");
}

TEST(a_mapped_file_outlives_its_name) {
  const ScratchDirectory scratch;
  write_file_atomically(scratch / "a", "some bytes");
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(scratch / "a");
  remove_file(scratch / "a");
  CHECK_EQ(mapped->bytes(), "some bytes");
  CHECK_EQ(mapped->size(), 10u);
  File::create(scratch / "empty", true);
  const std::shared_ptr<const MappedFile> empty = MappedFile::open(scratch / "empty");
  CHECK_EQ(empty->size(), 0u);
  CHECK(empty->data() == nullptr);
  CHECK_THROWS(MappedFile::open(scratch / "none"), StorageError, "No such file");
  CHECK_THROWS(MappedFile::open(scratch.path()), StorageError, "cannot map into memory");
}

TEST(an_atomic_write_leaves_the_old_or_the_new_bytes_whatever_fails) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "MANIFEST";
  set_fault(0, Action::none);
  write_file_atomically(path, "old");
  const std::uint64_t n_steps = n_operations();
  CHECK_EQ(n_steps, 5u);  // create, write, sync, rename, sync of the directory
  for (const Action action : {Action::no_space, Action::io_error}) {
    for (const std::uint64_t n_times : {1u, 1000u}) {
      for (std::uint64_t step = 1; step <= n_steps; ++step) {
        clear_fault();
        write_file_atomically(path, "old");
        set_fault(step, action, n_times);
        CHECK_THROWS(write_file_atomically(path, "the new bytes"), StorageError,
                     action == Action::no_space ? "No space left on device" : "error");
        CHECK_EQ(read_file(path), step < n_steps ? "old" : "the new bytes");
        if (n_times == 1) CHECK(!exists(path + ".tmp"));
      }
    }
  }
  for (const Action action : {Action::kill, Action::kill_midway}) {
    for (std::uint64_t step = 1; step <= n_steps + 1; ++step) {
      clear_fault();
      write_file_atomically(path, "old");
      const int status = status_of_child([&] {
        set_fault(step, action);
        write_file_atomically(path, "the new bytes");
        return 0;
      });
      CHECK_EQ(status, step <= n_steps ? 137 : 0);
      CHECK_EQ(read_file(path), step < n_steps ? "old" : "the new bytes");
    }
  }
  for (std::uint64_t step = 1; step <= n_steps; ++step) {
    set_fault(step, Action::short_write, 1000);
    write_file_atomically(path, "bytes " + std::to_string(step));
    CHECK_EQ(read_file(path), "bytes " + std::to_string(step));
  }
}

TEST(a_failed_write_says_how_much_it_was_and_writes_half_when_the_disk_is_full) {
  const ScratchDirectory scratch;
  File file = File::create(scratch / "a", true);
  set_fault(1, Action::no_space);
  CHECK_THROWS(file.write_all(std::string(120, 'x')), StorageError,
               (scratch / "a") + ": cannot write 120 bytes: No space left on device");
  CHECK_EQ(file.size(), 60u);
  set_fault(1, Action::io_error);
  CHECK_THROWS(file.write_all("abc", "def"), StorageError, "cannot write 6 bytes: ");
  CHECK_EQ(file.size(), 60u);
  file.truncate(0);
  set_fault(1, Action::short_write, 2);
  file.write_all("abc", "defgh");
  CHECK_EQ(n_operations(), 3u);
  CHECK_EQ(read_file(scratch / "a"), "abcdefgh");
  clear_fault();
  file.sync();
  CHECK_EQ(n_operations(), 3u);
}

TEST(a_directory_is_locked_by_one_holder_at_a_time) {
  const ScratchDirectory scratch;
  const std::string holder = "is open for writing in process " + std::to_string(::getpid()) +
                             "; close it there, or open a saved snapshot";
  {
    const DirectoryLock lock(scratch.path());
    CHECK(lock.is_held());
    CHECK_THROWS(DirectoryLock(scratch.path()), StorageError, scratch.path() + ": " + holder);
    const int status = status_of_child([&] {
      if (lock.is_held()) return 1;
      try {
        const DirectoryLock second(scratch.path());
      } catch (const StorageError& error) {
        return std::string_view(error.what()).find(holder) == std::string_view::npos ? 2 : 0;
      }
      return 3;
    });
    CHECK_EQ(status, 0);
    CHECK_THROWS(DirectoryLock(scratch.path()), StorageError, holder);
  }
  const DirectoryLock again(scratch.path());
  CHECK(again.is_held());
  CHECK_THROWS(DirectoryLock(scratch / "none"), StorageError, "cannot open for writing");
}

TEST(a_forked_child_neither_frees_nor_keeps_the_lock) {
  const ScratchDirectory scratch;
  int gate[2], started[2];
  CHECK_EQ(::pipe(gate), 0);
  CHECK_EQ(::pipe(started), 0);
  auto lock = std::make_unique<DirectoryLock>(scratch.path());
  const pid_t pid = ::fork();
  if (pid == 0) {  // lives until the parent closes the gate
    lock.reset();
    ::close(gate[1]);
    char byte = 'x';
    if (::write(started[1], &byte, 1) != 1) ::_exit(2);
    const ssize_t n = ::read(gate[0], &byte, 1);
    ::_exit(n == 0 ? 0 : 1);
  }
  ::close(gate[0]);
  ::close(started[1]);
  char byte;
  CHECK_EQ(::read(started[0], &byte, 1), 1);
  ::close(started[0]);
  CHECK_THROWS(DirectoryLock(scratch.path()), StorageError, "is open for writing");
  lock.reset();
  lock = std::make_unique<DirectoryLock>(scratch.path());  // though the child lives
  CHECK(lock->is_held());
  ::close(gate[1]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK_EQ(status, 0);
}

TEST(the_lock_of_a_dead_process_is_free) {
  const ScratchDirectory scratch;
  const int status = status_of_child([&] {
    const DirectoryLock lock(scratch.path());
    ::_exit(lock.is_held() ? 137 : 1);
    return 0;
  });
  CHECK_EQ(status, 137);
  CHECK(DirectoryLock(scratch.path()).is_held());
}

}  // namespace
}  // namespace tamis
