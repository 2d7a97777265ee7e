// A state of a matcher in one file, written once and mapped when it is opened.
//
//     0            64                                                        end - 64
//     header       section, section, ...            directory                footer
//     "TAMISIMG"   each at a multiple of 64         of each section: name,   "TAMISEND"
//     version                                       place, length, and the   directory's place,
//                                                   crc32c of each block     length and crc32c
//
//     directory    n_sections u64, then for each: n_name u64, name, at u64, n_bytes u64, and
//                  ceil(n_bytes / 1 MiB) times crc32c u32
//
// Opening reads the footer and the directory alone. What a section holds is checked, a block of
// 1 MiB at a time and once, by whoever is about to trust it: check() before its first use.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/file.hpp"
#include "tamis/sections.hpp"

namespace tamis {

inline constexpr std::size_t kImageBlockBytes = std::size_t{1} << 20;

struct ImageSection {
  std::uint64_t at = 0, n_bytes = 0;
  std::vector<std::uint32_t> crcs;  // of each block

  std::size_t n_blocks() const { return (n_bytes + kImageBlockBytes - 1) / kImageBlockBytes; }
};

class ImageWriter final : public SectionWriter {
 public:
  explicit ImageWriter(const std::string& path);  // a new file, or one that is emptied

  using SectionWriter::write;
  void write(const std::string& name, const void* data, std::size_t n_bytes) override;
  // A section in pieces: all append() between two begin() are one.
  void begin(const std::string& name);
  void append(const void* data, std::size_t n_bytes);
  // Writes the directory and syncs: the file is durable, but for its name.
  void finish();
  std::uint64_t n_bytes() const { return end_; }

 private:
  void put(const void* data, std::size_t n_bytes);
  void flush();

  File file_;
  std::string buffer_;
  std::uint64_t end_ = 0;
  std::vector<std::pair<std::string, ImageSection>> sections_;
  std::uint32_t crc_ = 0;
};

class Image {
 public:
  // A file of another length than `n_bytes` is an error: it was whole when its name was written.
  static std::shared_ptr<const Image> open(const std::string& path, std::uint64_t n_bytes);

  const std::string& path() const { return file_->path(); }
  const ImageSection& find(const std::string& name) const;  // StorageError
  const char* data(const ImageSection& section) const { return file_->data() + section.at; }
  // Throws StorageError where the bytes are not those that were written. Blocks that were checked
  // are not checked again.
  void check(const ImageSection& section) const { check(section, 0, section.n_bytes); }
  void check(const ImageSection& section, std::uint64_t at, std::uint64_t n_bytes) const;
  void check_all() const;
  // All sections whose name begins so.
  void check_all(const std::string& prefix) const;
  MappedFile::Private map_private(const ImageSection& section) const {
    return file_->map_private(section.at, section.n_bytes);
  }
  std::uint64_t n_bytes() const { return file_->size(); }

  [[noreturn]] void fail(const std::string& what) const;

 private:
  explicit Image(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

  struct Section : ImageSection {
    mutable std::vector<std::atomic<bool>> is_checked;  // [n_blocks]
  };
  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, Section> sections_;
};

// The sections of an image whose names begin with a prefix.
class ImageReader final : public SectionReader {
 public:
  ImageReader(std::shared_ptr<const Image> image, std::string prefix)
      : image_(std::move(image)), prefix_(std::move(prefix)) {}
  std::span<const std::byte> read(const std::string& name, std::size_t item_size) const override;
  std::shared_ptr<const void> owner() const override { return image_; }
  void check(const std::string& name) const override {
    image_->check(image_->find(prefix_ + name));
  }
  const Image& image() const { return *image_; }

 private:
  std::shared_ptr<const Image> image_;
  std::string prefix_;
};

// Writes sections whose names get a prefix.
class PrefixedWriter final : public SectionWriter {
 public:
  PrefixedWriter(SectionWriter& writer, std::string prefix)
      : writer_(writer), prefix_(std::move(prefix)) {}
  using SectionWriter::write;
  void write(const std::string& name, const void* data, std::size_t n_bytes) override {
    writer_.write(prefix_ + name, data, n_bytes);
  }

 private:
  SectionWriter& writer_;
  std::string prefix_;
};

}  // namespace tamis
