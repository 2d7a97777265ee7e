// Image files: sections, where they lie, when they are checked, and what damage says.
#include "storage/image.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "folder.hpp"

namespace tamis {
namespace {

using testing::Folder;

std::string bytes_of(std::size_t n_bytes, unsigned seed) {
  std::string bytes(n_bytes, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

std::string text_of(const Image& image, const ImageSection& section) {
  return {image.data(section), section.n_bytes};
}

void overwrite(const std::string& path, std::uint64_t at, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY);
  CHECK_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)),
           static_cast<ssize_t>(bytes.size()));
  ::close(fd);
}

void flip_bit(const std::string& path, std::uint64_t at) {
  const char byte = static_cast<char>(read_file(path)[at] ^ 16);
  overwrite(path, at, {&byte, 1});
}

constexpr std::size_t kSizes[] = {0,     1,
                                  63,    64,
                                  65,    4095,
                                  4096,  kImageBlockBytes - 1,
                                  12345, kImageBlockBytes,
                                  7,     kImageBlockBytes + 1,
                                  2,     3 * kImageBlockBytes + 5};

std::string name_of(std::size_t section) {
  return (section % 2 ? "odd/" : "even/") + std::to_string(section);
}

std::uint64_t write_image(const std::string& path) {
  ImageWriter writer(path);
  for (std::size_t section = 0; section < std::size(kSizes); ++section) {
    const std::string bytes = bytes_of(kSizes[section], static_cast<unsigned>(section));
    if (section % 3 == 0) {
      writer.write(name_of(section), bytes.data(), bytes.size());
      continue;
    }
    writer.begin(name_of(section));
    for (std::size_t at = 0, piece = 1; at < bytes.size(); at += piece, piece = piece * 3 + 1) {
      writer.append(bytes.data() + at, std::min(piece, bytes.size() - at));
    }
  }
  writer.finish();
  CHECK_EQ(writer.n_bytes(), read_file(path).size());
  return writer.n_bytes();
}

TEST(sections_come_back_as_they_were_written_at_multiples_of_64) {
  const Folder folder;
  const std::string path = folder / "image";
  const std::shared_ptr<const Image> image = Image::open(path, write_image(path));
  for (std::size_t section = 0; section < std::size(kSizes); ++section) {
    const ImageSection& found = image->find(name_of(section));
    CHECK_EQ(found.n_bytes, kSizes[section]);
    CHECK_EQ(found.at % 64, 0u);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(image->data(found)) % 64, 0u);
    CHECK_EQ(found.crcs.size(), found.n_blocks());
    image->check(found);
    CHECK(text_of(*image, found) == bytes_of(kSizes[section], static_cast<unsigned>(section)));
  }
  image->check_all();
}

TEST(an_image_without_sections_and_one_with_an_empty_section_are_whole) {
  const Folder folder;
  ImageWriter none(folder / "none");
  none.finish();
  Image::open(folder / "none", none.n_bytes())->check_all();
  ImageWriter empty(folder / "empty");
  empty.write("nothing", nullptr, 0);
  empty.finish();
  const std::shared_ptr<const Image> image = Image::open(folder / "empty", empty.n_bytes());
  image->check(image->find("nothing"));
  CHECK(image->map_private(image->find("nothing")).data == nullptr);
  CHECK_EQ(ImageReader(image, "").column<std::uint64_t>("nothing").size(), 0u);
}

TEST(a_section_that_is_missing_or_ends_within_an_item_is_named) {
  const Folder folder;
  const std::string path = folder / "image";
  const std::shared_ptr<const Image> image = Image::open(path, write_image(path));
  CHECK_THROWS(image->find("even/1"), StorageError,
               path + ": is damaged: it has no section even/1");
  const ImageReader reader(image, "odd/");
  CHECK_THROWS(reader.check("0"), StorageError, "no section odd/0");
  CHECK_EQ(reader.span<std::uint32_t>("3").size(), 16u);
  CHECK_THROWS(reader.span<std::uint32_t>("1"), StorageError, "odd/1 ends within an item");
}

TEST(an_image_of_another_length_is_refused) {
  const Folder folder;
  const std::string path = folder / "image";
  const std::uint64_t n_bytes = write_image(path);
  CHECK_THROWS(Image::open(path, n_bytes + 1), StorageError, path + ": is damaged");
  CHECK_THROWS(Image::open(path, n_bytes - 1), StorageError, path);
  const std::string whole = read_file(path);
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64},
                                     std::uint64_t{127}, std::uint64_t{4096}, n_bytes - 1}) {
    CHECK_EQ(::truncate(path.c_str(), static_cast<off_t>(length)), 0);
    CHECK_THROWS(Image::open(path, n_bytes), StorageError, path);
    CHECK_THROWS(Image::open(path, length), StorageError, path);  // though it is as told
    write_file_atomically(path, whole);
  }
  overwrite(path, n_bytes, "more");
  CHECK_THROWS(Image::open(path, n_bytes), StorageError, path);
  CHECK_THROWS(Image::open(path, n_bytes + 4), StorageError, path);
  CHECK_THROWS(Image::open(folder / "missing", n_bytes), StorageError, "missing");
}

TEST(a_flipped_bit_of_header_directory_or_footer_is_found_on_opening) {
  const Folder folder;
  const std::string path = folder / "image";
  ImageWriter writer(path);
  writer.write("one", "abc", 3);
  writer.write("another", bytes_of(200, 1).data(), 200);
  writer.finish();
  const std::string whole = read_file(path);
  const std::uint64_t directory = 64 + 64 + 256;  // behind the header and both sections
  for (std::uint64_t at = 0; at < whole.size(); ++at) {
    const bool is_edge =
        at < 16 || (at >= directory && at + 40 < whole.size()) || at + 8 >= whole.size();
    if (!is_edge) continue;
    flip_bit(path, at);
    CHECK_THROWS(Image::open(path, whole.size()), StorageError, path);
    overwrite(path, at, {&whole[at], 1});
  }
  Image::open(path, whole.size())->check_all();
}

TEST(blocks_are_checked_when_they_are_used_and_once) {
  const Folder folder;
  const std::string path = folder / "image";
  const std::uint64_t n_bytes = write_image(path);
  const std::size_t last = std::size(kSizes) - 1;
  const std::uint64_t at = Image::open(path, n_bytes)->find(name_of(last)).at;
  flip_bit(path, at + 2 * kImageBlockBytes + 7);

  const std::shared_ptr<const Image> image = Image::open(path, n_bytes);
  const ImageSection& section = image->find(name_of(last));
  image->check(section, 0, 2 * kImageBlockBytes);  // two blocks that are whole
  image->check(section, 3 * kImageBlockBytes, 5);
  image->check(section, 2 * kImageBlockBytes + 7, 0);
  for (int time = 0; time < 2; ++time) {  // damage is told every time
    CHECK_THROWS(image->check(section, 2 * kImageBlockBytes + 900, 1), StorageError,
                 path + ": is damaged: the checksum of the bytes from " +
                     std::to_string(at + 2 * kImageBlockBytes));
    CHECK_THROWS(image->check(section, 2 * kImageBlockBytes - 1, 2), StorageError, path);
    CHECK_THROWS(image->check(section), StorageError, path);
  }
  CHECK_THROWS(image->check_all(), StorageError, path);
  image->check_all("even/1");
  CHECK_THROWS(image->check_all("odd/13"), StorageError, path);

  // The mapping is the file: what changes behind a check is not looked at again.
  flip_bit(path, at + 7);
  image->check(section, 0, kImageBlockBytes);
  const std::shared_ptr<const Image> again = Image::open(path, n_bytes);
  CHECK_THROWS(again->check(again->find(name_of(last)), 0, 1), StorageError, path);
}

TEST(many_threads_check_one_image) {
  const Folder folder;
  const std::string path = folder / "image";
  const std::shared_ptr<const Image> image = Image::open(path, write_image(path));
  std::atomic<int> n_errors{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      try {
        image->check_all();
      } catch (const StorageError&) {
        ++n_errors;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(n_errors.load(), 0);
}

TEST(a_private_mapping_never_changes_the_file) {
  const Folder folder;
  const std::string path = folder / "image";
  std::uint64_t n_bytes = write_image(path);
  const std::string whole = read_file(path);
  MappedFile::Private kept;
  {
    const std::shared_ptr<const Image> image = Image::open(path, n_bytes);
    for (std::size_t section = 1; section < std::size(kSizes); ++section) {
      const ImageSection& found = image->find(name_of(section));
      kept = image->map_private(found);
      const MappedFile::Private other = image->map_private(found);
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(kept.data) % 64, 0u);
      CHECK(std::memcmp(kept.data, image->data(found), found.n_bytes) == 0);
      std::memset(kept.data, 'x', found.n_bytes);
      // Neither the image nor another mapping sees it.
      image->check(found);
      CHECK(std::memcmp(other.data, image->data(found), found.n_bytes) == 0);
    }
  }
  CHECK_EQ(kept.data[kSizes[std::size(kSizes) - 1] - 1], 'x');  // it outlives the image
  CHECK(read_file(path) == whole);
}

TEST(columns_of_an_image_outlive_it_and_its_name) {
  const Folder folder;
  const std::string path = folder / "image";
  Column<std::uint32_t> column;
  {
    ImageWriter writer(path);
    writer.write("numbers", Column<std::uint32_t>(std::vector<std::uint32_t>{1, 2, 3}));
    writer.finish();
    const std::shared_ptr<const Image> image = Image::open(path, writer.n_bytes());
    column = ImageReader(image, "").column<std::uint32_t>("numbers");
  }
  remove_file(path);
  CHECK_EQ(column.size(), 3u);
  CHECK_EQ(column[2], 3u);
  CHECK_EQ(column.n_bytes(), 0u);  // none of its own
}

}  // namespace
}  // namespace tamis
