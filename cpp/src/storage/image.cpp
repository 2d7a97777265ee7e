#include "storage/image.hpp"

#include <algorithm>
#include <cstring>

#include "storage/crc32c.hpp"

namespace tamis {
namespace {

constexpr char kMagic[] = "TAMISIMG";
constexpr char kEndMagic[] = "TAMISEND";
// 2: indexes of tuple-key and block-bitmap have other sections. 3: predicates are packed, number
// intervals have 20 bytes, ranks have other sections. 4: tuple-key has likely filters.
// 5: a place of spatial-grid has 64 bytes. 6: guards of tuple-key are in chunks.
// 7: likely filters of tuple-key are lines.
constexpr std::uint32_t kVersion = 7;
constexpr std::size_t kEdgeBytes = 64;  // of the header, of the footer, and between sections
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

struct Header {
  char magic[8];
  std::uint32_t version, crc;  // of the bytes before it
  char reserved[48];
};
static_assert(sizeof(Header) == kEdgeBytes);

struct Footer {
  std::uint64_t at, n_bytes;  // of the directory
  std::uint32_t crc;          // of the directory
  std::uint32_t own_crc;      // of the bytes before it
  char reserved[32];
  char magic[8];
};
static_assert(sizeof(Footer) == kEdgeBytes);

Header make_header() {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.version = kVersion;
  header.crc = crc32c(&header, offsetof(Header, crc));
  return header;
}

}  // namespace

// ImageWriter

ImageWriter::ImageWriter(const std::string& path) : file_(File::create(path, false)) {
  const Header header = make_header();
  put(&header, sizeof header);
}

void ImageWriter::put(const void* data, std::size_t n_bytes) {
  end_ += n_bytes;
  if (n_bytes >= kBufferBytes) {
    flush();
    file_.write_all(data, n_bytes);
    return;
  }
  buffer_.append(static_cast<const char*>(data), n_bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void ImageWriter::flush() {
  if (!buffer_.empty()) file_.write_all(buffer_);
  buffer_.clear();
}

void ImageWriter::begin(const std::string& name) {
  constexpr char kZeros[kEdgeBytes] = {};
  if (const std::size_t over = end_ % kEdgeBytes; over > 0) put(kZeros, kEdgeBytes - over);
  sections_.emplace_back(name, ImageSection{end_, 0, {}});
}

void ImageWriter::append(const void* data, std::size_t n_bytes) {
  ImageSection& section = sections_.back().second;
  const char* at = static_cast<const char*>(data);
  for (std::size_t left = n_bytes; left > 0;) {
    const std::size_t within = section.n_bytes % kImageBlockBytes;
    const std::size_t taken = std::min(left, kImageBlockBytes - within);
    if (within == 0) section.crcs.push_back(0);
    section.crcs.back() = crc32c(at, taken, section.crcs.back());
    section.n_bytes += taken;
    at += taken;
    left -= taken;
  }
  put(data, n_bytes);
}

void ImageWriter::write(const std::string& name, const void* data, std::size_t n_bytes) {
  begin(name);
  append(data, n_bytes);
}

void ImageWriter::finish() {
  std::string directory;
  const auto put_number = [&](std::uint64_t number) {
    directory.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  put_number(sections_.size());
  for (const auto& [name, section] : sections_) {
    put_number(name.size());
    directory += name;
    put_number(section.at);
    put_number(section.n_bytes);
    directory.append(reinterpret_cast<const char*>(section.crcs.data()),
                     section.crcs.size() * sizeof(std::uint32_t));
  }
  Footer footer{};
  footer.at = end_;
  footer.n_bytes = directory.size();
  footer.crc = crc32c(directory.data(), directory.size());
  footer.own_crc = crc32c(&footer, offsetof(Footer, own_crc));
  std::memcpy(footer.magic, kEndMagic, sizeof footer.magic);
  put(directory.data(), directory.size());
  put(&footer, sizeof footer);
  flush();
  file_.sync();
}

// Image

void Image::fail(const std::string& what) const { throw StorageError(path(), what); }

std::shared_ptr<const Image> Image::open(const std::string& path, std::uint64_t n_bytes) {
  std::shared_ptr<Image> image(new Image(MappedFile::open(path)));
  const MappedFile& file = *image->file_;
  Header header;
  if (file.size() >= sizeof header) std::memcpy(&header, file.data(), sizeof header);
  if (file.size() < sizeof header || std::memcmp(header.magic, kMagic, 8) != 0) {
    image->fail("is not an image of a matcher");
  }
  if (header.version != kVersion) {
    image->fail(std::string("was written by ") +
                (header.version < kVersion ? "an older" : "a newer") + " Tamis (image version " +
                std::to_string(header.version) + ")");
  }
  if (header.crc != crc32c(&header, offsetof(Header, crc))) {
    image->fail("is damaged: the checksum of its header is wrong");
  }
  if (file.size() != n_bytes || file.size() < sizeof(Header) + sizeof(Footer)) {
    image->fail("is damaged: it was written with " + std::to_string(n_bytes) +
                " bytes, and there are " + std::to_string(file.size()));
  }
  Footer footer;
  const std::uint64_t footer_at = file.size() - sizeof footer;
  std::memcpy(&footer, file.data() + footer_at, sizeof footer);
  if (std::memcmp(footer.magic, kEndMagic, 8) != 0 ||
      footer.own_crc != crc32c(&footer, offsetof(Footer, own_crc)) || footer.at > footer_at ||
      footer.n_bytes != footer_at - footer.at ||
      footer.crc != crc32c(file.data() + footer.at, footer.n_bytes)) {
    image->fail("is damaged: its directory is not as it was written");
  }
  // The checksum was right, so these are the bytes of a writer; the limits below cost nothing.
  std::string_view rest(file.data() + footer.at, footer.n_bytes);
  const auto take = [&](std::uint64_t n_taken) {
    if (n_taken > rest.size()) image->fail("is damaged: its directory ends too early");
    const std::string_view taken = rest.substr(0, n_taken);
    rest.remove_prefix(n_taken);
    return taken;
  };
  const auto take_number = [&] {
    std::uint64_t number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  };
  for (std::uint64_t left = take_number(); left > 0; --left) {
    const std::string name(take(take_number()));
    Section& section = image->sections_[name];
    section.at = take_number();
    section.n_bytes = take_number();
    if (section.at % kEdgeBytes != 0 || section.at > footer.at ||
        section.n_bytes > footer.at - section.at) {
      image->fail("is damaged: the section " + name + " lies outside of it");
    }
    section.crcs.resize(section.n_blocks());
    const std::string_view crcs = take(section.crcs.size() * sizeof(std::uint32_t));
    if (!crcs.empty()) std::memcpy(section.crcs.data(), crcs.data(), crcs.size());
    section.is_checked = std::vector<std::atomic<bool>>(section.n_blocks());
  }
  return image;
}

const ImageSection& Image::find(const std::string& name) const {
  const auto found = sections_.find(name);
  if (found == sections_.end()) fail("is damaged: it has no section " + name);
  return found->second;
}

void Image::check(const ImageSection& given, std::uint64_t at, std::uint64_t n_bytes) const {
  if (n_bytes == 0) return;
  const auto& section = static_cast<const Section&>(given);
  const std::size_t last = (at + n_bytes - 1) / kImageBlockBytes;
  for (std::size_t block = at / kImageBlockBytes; block <= last; ++block) {
    if (section.is_checked[block].load(std::memory_order_acquire)) continue;
    const std::uint64_t begin = block * kImageBlockBytes;
    const std::uint64_t length = std::min<std::uint64_t>(kImageBlockBytes, section.n_bytes - begin);
    if (crc32c(data(section) + begin, length) != section.crcs[block]) {
      fail("is damaged: the checksum of the bytes from " + std::to_string(section.at + begin) +
           " to " + std::to_string(section.at + begin + length) + " is wrong");
    }
    section.is_checked[block].store(true, std::memory_order_release);
  }
}

void Image::check_all() const { check_all({}); }

void Image::check_all(const std::string& prefix) const {
  for (const auto& [name, section] : sections_) {
    if (name.starts_with(prefix)) check(section);
  }
}

std::span<const std::byte> ImageReader::read(const std::string& name, std::size_t item_size) const {
  const ImageSection& section = image_->find(prefix_ + name);
  if (section.n_bytes % item_size != 0) {
    image_->fail("is damaged: the section " + prefix_ + name + " ends within an item");
  }
  return {reinterpret_cast<const std::byte*>(image_->data(section)), section.n_bytes};
}

}  // namespace tamis
