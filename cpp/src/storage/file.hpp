// Files as durable storage needs them: thin wrappers over POSIX that either do the whole of what
// they say or throw StorageError, and that tests can make fail at any single operation.
//
// Nothing here is buffered: what write_all() wrote survives the death of the process, what sync()
// returned for survives the death of the machine. A new name survives it after sync_directory().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tamis/error.hpp"

namespace tamis {

// "<path>: <what was tried>: <what the system says>"; without the last part where code() is 0.
class StorageError : public Error {
 public:
  StorageError(const std::string& path, const std::string& what, int code = 0);
  int code() const { return code_; }  // errno, or 0: the file says something wrong

 private:
  int code_;
};

// Owns a file descriptor. Writers append: there is no position to go wrong after a truncation.
class File {
 public:
  // For writing at the end of an existing file.
  static File open_append(const std::string& path);
  // A new, empty file. One of that name is an error (EEXIST) if `is_exclusive`, else emptied.
  static File create(const std::string& path, bool is_exclusive);
  static File open_read(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // All of the bytes, in one system call unless the system takes fewer. After an error any part
  // of them may have been written.
  void write_all(const void* data, std::size_t n_bytes);
  void write_all(std::string_view bytes) { write_all(bytes, {}); }
  void write_all(std::string_view first, std::string_view second);
  // After an error what reached the disk is unknown, and a later sync() that returns proves
  // nothing (the kernel drops the pages it could not write): give the file up.
  void sync();
  void truncate(std::uint64_t n_bytes);
  std::uint64_t size() const;
  const std::string& path() const { return path_; }

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::string path_;
};

std::string parent_directory(const std::string& path);  // "." where the path names none
// Makes what was created, renamed and removed in the directory durable.
void sync_directory(const std::string& path);
void rename_file(const std::string& from, const std::string& to);  // replaces `to` atomically
bool remove_file(const std::string& path);                         // false: there was none
std::vector<std::string> list_directory(const std::string& path);  // names, sorted
bool exists(const std::string& path);
// Makes the last part of the path, durably; false: it is a directory already.
bool make_directory(const std::string& path);
std::string read_file(const std::string& path);

// Writes `path.tmp`, syncs it, renames it and syncs the directory. Whenever this ends, and
// however, `path` holds all of the old bytes or all of the new ones; after it returned, the new.
void write_file_atomically(const std::string& path, std::string_view bytes);

// A file in memory, read only, for as long as anybody holds it. Whoever writes must never
// shorten a file that is mapped: reading behind its end kills the process.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const char* data() const { return data_; }  // null where size() is 0, else page-aligned
  std::size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // A part of it that may be written to: pages that were are this process's own, the others are
  // still the file's, and the file never changes.
  struct Private {
    char* data = nullptr;
    std::shared_ptr<const void> owner;
  };
  Private map_private(std::size_t at, std::size_t n_bytes) const;

 private:
  MappedFile(int fd, const char* data, std::size_t size, std::string path)
      : fd_(fd), data_(data), size_(size), path_(std::move(path)) {}

  int fd_;
  const char* data_;
  std::size_t size_;
  std::string path_;
};

// The right to write in a directory: a lock on <directory>/LOCK, which names the holder's process.
// The system frees it when the holder dies; the file stays, as removing it would let two processes
// lock two files of that name.
//
// A fork shares the lock with the child, which would keep it when the parent closes or dies. So a
// fork handler closes it in the child: there is_held() turns false, and writing must stop. (Until
// the child has come that far, the directory stays locked even if the parent closes it.)
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);  // held elsewhere: StorageError
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  bool is_held() const { return fd_ >= 0; }

 private:
  friend struct LockRegistry;
  int fd_ = -1;
};

// Fault injection, for tests. An operation is one creation of a file or directory, write, sync,
// truncate, rename, remove or directory sync; a write the system cuts short is followed by a
// second operation. LOCK is not counted: nothing depends on what it contains.
struct FaultPlan {
  enum class Action : std::uint8_t {
    none,
    kill,         // the process ends (status 137) before the operation
    kill_midway,  // as kill; a write writes half of its bytes first
    no_space,     // ENOSPC without the operation; a write writes half of its bytes first
    io_error,     // EIO without the operation
    short_write,  // a write takes half of its bytes and goes on; other operations are done
  };
};
// Counts operations from now; `n_times` of them, from the one numbered `nth_operation` (the first
// is 1), fail by `action`. nth_operation = 0 only counts.
void set_fault(std::uint64_t nth_operation, FaultPlan::Action action, std::uint64_t n_times = 1);
void clear_fault();
std::uint64_t n_operations();  // since set_fault(), up to clear_fault()

}  // namespace tamis
