// A directory of a test's own, gone when the test ends.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "storage/file.hpp"

namespace tamis::testing {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "tamis-test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw StorageError(path_, "cannot make", errno);
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tamis::testing
