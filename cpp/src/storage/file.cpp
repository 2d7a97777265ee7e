#include "storage/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <utility>

namespace tamis {

namespace {

using Action = FaultPlan::Action;

constexpr int kKilledStatus = 137;  // what a shell shows for a process killed by signal 9

struct Faults {
  std::atomic<bool> is_on{false};
  std::atomic<std::uint64_t> n_operations{0};
  std::atomic<std::uint64_t> first{0};
  std::atomic<std::uint64_t> n_times{0};
  std::atomic<Action> action{Action::none};
};
Faults faults;

// Counts one operation and says what is to happen to it.
Action count_operation() {
  if (!faults.is_on.load(std::memory_order_relaxed)) return Action::none;
  const std::uint64_t number = faults.n_operations.fetch_add(1) + 1;
  const std::uint64_t first = faults.first.load();
  const bool is_planned = first != 0 && number >= first && number - first < faults.n_times.load();
  return is_planned ? faults.action.load() : Action::none;
}

// Before an operation that is done wholly or not at all.
void begin_operation(const std::string& path, const char* what) {
  switch (count_operation()) {
    case Action::none:
    case Action::short_write:
      return;
    case Action::kill:
    case Action::kill_midway:
      ::_exit(kKilledStatus);
    case Action::no_space:
      throw StorageError(path, what, ENOSPC);
    case Action::io_error:
      throw StorageError(path, what, EIO);
  }
}

template <class Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int open_or_throw(const std::string& path, int flags, const char* what) {
  const int fd = retry_interrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) throw StorageError(path, what, errno);
  return fd;
}

std::string message_of(const std::string& path, const std::string& what, int code) {
  std::string message = path + ": " + what;
  if (code != 0) message += ": " + std::generic_category().message(code);
  return message;
}

}  // namespace

void set_fault(std::uint64_t nth_operation, FaultPlan::Action action, std::uint64_t n_times) {
  faults.first = nth_operation;
  faults.n_times = n_times;
  faults.action = action;
  faults.n_operations = 0;
  faults.is_on = true;
}

void clear_fault() { faults.is_on = false; }

std::uint64_t n_operations() { return faults.n_operations; }

StorageError::StorageError(const std::string& path, const std::string& what, int code)
    : Error(message_of(path, what, code)), code_(code) {}

// File

File File::open_append(const std::string& path) {
  return File(open_or_throw(path, O_WRONLY | O_APPEND, "cannot open for writing"), path);
}

File File::create(const std::string& path, bool is_exclusive) {
  begin_operation(path, "cannot create");
  const int flags = O_WRONLY | O_APPEND | O_CREAT | (is_exclusive ? O_EXCL : O_TRUNC);
  return File(open_or_throw(path, flags, "cannot create"), path);
}

File File::open_read(const std::string& path) {
  return File(open_or_throw(path, O_RDONLY, "cannot open"), path);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

// What close() reports is of no use: what had to be durable was synced.
File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::write_all(const void* data, std::size_t n_bytes) {
  write_all(std::string_view(static_cast<const char*>(data), n_bytes), {});
}

void File::write_all(std::string_view first, std::string_view second) {
  const std::size_t n_wanted = first.size() + second.size();
  const auto fail = [&](int code) {
    throw StorageError(path_, "cannot write " + std::to_string(n_wanted) + " bytes", code);
  };
  // Writes at most `n_most` of what is left; how many it wrote.
  const auto write_some = [&](std::size_t n_most) {
    const std::size_t n_first = std::min(first.size(), n_most);
    const std::size_t n_second = std::min(second.size(), n_most - n_first);
    iovec parts[2] = {{const_cast<char*>(first.data()), n_first},
                      {const_cast<char*>(second.data()), n_second}};
    iovec* begin = n_first > 0 ? parts : parts + 1;
    const int n_parts = n_first > 0 && n_second > 0 ? 2 : 1;
    const ssize_t n = retry_interrupted([&] { return ::writev(fd_, begin, n_parts); });
    if (n < 0) fail(errno);
    if (n == 0) fail(EIO);
    const std::size_t n_of_first = std::min(first.size(), static_cast<std::size_t>(n));
    first.remove_prefix(n_of_first);
    second.remove_prefix(static_cast<std::size_t>(n) - n_of_first);
    return static_cast<std::size_t>(n);
  };
  const auto write_half = [&] {
    for (std::size_t n_left = (first.size() + second.size()) / 2; n_left > 0;) {
      n_left -= write_some(n_left);
    }
  };
  while (!first.empty() || !second.empty()) {
    switch (count_operation()) {
      case Action::none:
        write_some(first.size() + second.size());
        break;
      case Action::short_write:
        write_some(std::max<std::size_t>(1, (first.size() + second.size()) / 2));
        break;
      case Action::kill_midway:
        write_half();
        [[fallthrough]];
      case Action::kill:
        ::_exit(kKilledStatus);
      case Action::no_space:
        write_half();
        fail(ENOSPC);
        break;
      case Action::io_error:
        fail(EIO);
        break;
    }
  }
}

void File::sync() {
  begin_operation(path_, "cannot sync");
  if (retry_interrupted([&] { return ::fdatasync(fd_); }) != 0) {
    throw StorageError(path_, "cannot sync", errno);
  }
}

void File::truncate(std::uint64_t n_bytes) {
  const std::string what = "cannot truncate to " + std::to_string(n_bytes) + " bytes";
  begin_operation(path_, what.c_str());
  if (retry_interrupted([&] { return ::ftruncate(fd_, static_cast<off_t>(n_bytes)); }) != 0) {
    throw StorageError(path_, what, errno);
  }
}

std::uint64_t File::size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) throw StorageError(path_, "cannot read its size", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

// Directories and names

std::string parent_directory(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const std::size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

void sync_directory(const std::string& path) {
  constexpr const char* kWhat = "cannot sync the directory";
  begin_operation(path, kWhat);
  const int fd = open_or_throw(path, O_RDONLY | O_DIRECTORY, kWhat);
  const int result = retry_interrupted([&] { return ::fsync(fd); });
  const int code = errno;
  ::close(fd);
  // EINVAL: a file system that cannot sync directories, as some network ones. Nothing more can
  // be done there, and PostgreSQL goes on too.
  if (result != 0 && code != EINVAL) throw StorageError(path, kWhat, code);
}

void rename_file(const std::string& from, const std::string& to) {
  const std::string what = "cannot rename to " + to;
  begin_operation(from, what.c_str());
  if (::rename(from.c_str(), to.c_str()) != 0) throw StorageError(from, what, errno);
}

bool remove_file(const std::string& path) {
  begin_operation(path, "cannot remove");
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  throw StorageError(path, "cannot remove", errno);
}

std::vector<std::string> list_directory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (directory == nullptr) throw StorageError(path, "cannot list the directory", errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) throw StorageError(path, "cannot list the directory", errno);
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw StorageError(path, "cannot look for it", errno);
}

bool make_directory(const std::string& path) {
  constexpr const char* kWhat = "cannot make the directory";
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return false;
    throw StorageError(path, kWhat, ENOTDIR);
  }
  begin_operation(path, kWhat);
  if (::mkdir(path.c_str(), 0777) != 0) throw StorageError(path, kWhat, errno);
  sync_directory(parent_directory(path));
  return true;
}

std::string read_file(const std::string& path) {
  const int fd = open_or_throw(path, O_RDONLY, "cannot open");
  std::string bytes;
  char block[1 << 14];
  for (;;) {
    const ssize_t n = retry_interrupted([&] { return ::read(fd, block, sizeof block); });
    if (n <= 0) {
      const int code = n < 0 ? errno : 0;
      ::close(fd);
      if (code != 0) throw StorageError(path, "cannot read", code);
      return bytes;
    }
    bytes.append(block, static_cast<std::size_t>(n));
  }
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  const std::string aside = path + ".tmp";
  try {
    File file = File::create(aside, false);
    file.write_all(bytes);
    file.sync();
    rename_file(aside, path);
  } catch (const StorageError&) {
    try {
      remove_file(aside);
    } catch (const StorageError&) {  // the next writer empties it
    }
    throw;
  }
  sync_directory(parent_directory(path));
}

// MappedFile

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const int fd = open_or_throw(path, O_RDONLY, "cannot open");
  struct stat status;
  void* data = nullptr;
  int code = 0;
  if (::fstat(fd, &status) != 0) {
    code = errno;
  } else if (!S_ISREG(status.st_mode)) {
    code = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  } else if (status.st_size > 0) {
    data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) code = errno;
  }
  if (code != 0) {
    ::close(fd);
    throw StorageError(path, "cannot map into memory", code);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(
      fd, static_cast<const char*>(data), static_cast<std::size_t>(status.st_size), path));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<char*>(data_), size_);
  ::close(fd_);
}

MappedFile::Private MappedFile::map_private(std::size_t at, std::size_t n_bytes) const {
  if (n_bytes == 0) return {};
  const std::size_t before = at % static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t length = n_bytes + before;
  void* const data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_,
                            static_cast<off_t>(at - before));
  if (data == MAP_FAILED) throw StorageError(path_, "cannot map into memory", errno);
  return {static_cast<char*>(data) + before,
          std::shared_ptr<const void>(data, [length](void* mapped) { ::munmap(mapped, length); })};
}

// DirectoryLock

// All locks of this process, for the fork handlers. Never destroyed: a lock may outlive it.
struct LockRegistry {
  std::mutex mutex;
  std::vector<DirectoryLock*> locks;

  static LockRegistry& get() {
    static LockRegistry* registry = [] {
      ::pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, &close_in_child);
      return new LockRegistry;
    }();
    return *registry;
  }

  static void close_in_child() {
    LockRegistry& registry = get();
    for (DirectoryLock* lock : registry.locks) ::close(std::exchange(lock->fd_, -1));
    registry.locks.clear();
    registry.mutex.unlock();
  }
};

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = directory + "/LOCK";
  LockRegistry& registry = LockRegistry::get();
  // Held from open() on, or a fork between the two would leak the lock into the child.
  const std::lock_guard guard(registry.mutex);
  registry.locks.reserve(registry.locks.size() + 1);
  const int fd = open_or_throw(path, O_RDWR | O_CREAT, "cannot open for writing");
  if (retry_interrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) != 0) {
    const int code = errno;
    char text[32] = {};
    const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
    ::close(fd);
    if (code != EWOULDBLOCK) throw StorageError(path, "cannot lock", code);
    const long long pid = n > 0 ? std::strtoll(text, nullptr, 10) : 0;
    const std::string holder =
        pid > 0 ? "process " + std::to_string(pid) : std::string("another process");
    throw StorageError(directory, "is open for writing in " + holder +
                                      "; close it there, or open a saved snapshot");
  }
  // Only for the message above: a full disk must not keep anybody from opening.
  const std::string text = std::to_string(::getpid()) + "\n";
  [[maybe_unused]] const bool is_noted =
      ::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) > 0;
  fd_ = fd;
  registry.locks.push_back(this);
}

// Closes and does not unlock: LOCK_UN would free the lock of all processes that share it.
DirectoryLock::~DirectoryLock() {
  LockRegistry& registry = LockRegistry::get();
  const std::lock_guard guard(registry.mutex);
  std::erase(registry.locks, this);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tamis
