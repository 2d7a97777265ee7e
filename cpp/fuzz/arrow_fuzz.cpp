// Wild record batches. The bytes choose types, lengths, offsets, validity and contents; buffers
// are as large as lengths and offsets say, and no larger, so that the sanitizer sees every byte too
// many. Whatever the interface lets a consumer check may be wrong: counts, missing buffers,
// negative lengths, string and map offsets, views, dictionary indices.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/utf8.hpp"
#include "encode/arrow_abi.h"
#include "tamis/encode.hpp"
#include "tamis/error.hpp"

namespace {

using namespace tamis;

void require(bool condition) {
  if (!condition) std::abort();
}

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
  std::uint8_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  std::size_t below(std::size_t limit) { return next() % limit; }
  // True once in `n`, never when the bytes are used up.
  bool rarely(std::size_t n) { return left_ > 0 && next() % n == n - 1; }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

constexpr const char* kFormats[] = {"b",   "c",   "C",    "s",     "S",       "i",    "I",  "l",
                                    "L",   "e",   "f",    "g",     "u",       "U",    "vu", "n",
                                    "tdD", "tdm", "tss:", "tsm:",  "tsu:UTC", "tsn:", "+m", "u",
                                    "u",   "z",   "+l",   "d:9,2", "+s",      "tts"};
constexpr const char* kNames[] = {"a", "b", "c", "d", "x", "y", "long attribute name"};

class Builder {
 public:
  explicit Builder(Bytes& bytes) : bytes_(bytes) {}

  // Values 0 .. n_needed of the array can be read.
  void build(ArrowArray& array, ArrowSchema& schema, const char* format, std::size_t n_needed,
             int depth) {
    schema.format = format;
    schema.release = [](ArrowSchema*) {};
    array.release = [](ArrowArray*) {};
    array.offset = static_cast<std::int64_t>(bytes_.below(4));
    array.length = static_cast<std::int64_t>(n_needed + bytes_.below(2));
    const std::size_t n_values = n_needed + static_cast<std::size_t>(array.length + array.offset);
    const std::string_view type = format;
    std::vector<const void*>& buffers = keep(std::vector<const void*>());
    if (type != "n") {
      array.null_count = bytes_.rarely(3) ? -1 : 0;
      buffers.push_back(array.null_count == 0 && bytes_.below(2) == 0 ? nullptr
                                                                      : random(n_values / 8 + 1));
    }
    if (type == "+m") {
      build_map(array, schema, buffers, n_values, depth);
    } else if (type == "+s") {
      array.n_children = schema.n_children = 0;
    } else if (depth < 2 && std::strchr("cCsSiIlL", format[0]) != nullptr && type.size() == 1 &&
               bytes_.rarely(3)) {
      buffers.push_back(random_small(n_values, width(type)));
      array.dictionary = &keep(ArrowArray{});
      schema.dictionary = &keep(ArrowSchema{});
      build(*array.dictionary, *schema.dictionary, kFormats[bytes_.below(std::size(kFormats))],
            bytes_.rarely(8) ? 1100 : bytes_.below(6), depth + 2);
    } else if (type == "u") {
      build_strings<std::int32_t>(buffers, n_values);
    } else if (type == "U") {
      build_strings<std::int64_t>(buffers, n_values);
    } else if (type == "vu") {
      build_views(buffers, n_values);
    } else if (type != "n") {
      buffers.push_back(random(n_values * width(type)));
    }
    // Damage that can be seen.
    if (bytes_.rarely(100)) array.length = -1 - static_cast<std::int64_t>(bytes_.next());
    if (bytes_.rarely(100)) array.length = 0;
    if (bytes_.rarely(100)) array.offset = -1 - static_cast<std::int64_t>(bytes_.next());
    if (bytes_.rarely(100)) array.null_count = 1;
    if (bytes_.rarely(100) && !buffers.empty()) buffers[bytes_.below(buffers.size())] = nullptr;
    // Views are followed by as many buffers as there are: that one is missing cannot be seen.
    if (bytes_.rarely(100) && !buffers.empty() && type != "vu") buffers.pop_back();
    array.n_buffers = static_cast<std::int64_t>(buffers.size());
    array.buffers = buffers.data();
    if (bytes_.rarely(100)) array.buffers = nullptr;
    if (bytes_.rarely(100)) array.dictionary = nullptr;
    if (bytes_.rarely(100)) array.children = nullptr;
  }

  template <class T>
  T& keep(T value) {
    auto holder = std::make_shared<T>(std::move(value));
    kept_.push_back(holder);
    return *holder;
  }

 private:
  static std::size_t width(std::string_view type) {
    if (type == "b" || type == "c" || type == "C") return 1;
    if (type == "s" || type == "S" || type == "e") return 2;
    if (type == "i" || type == "I" || type == "f" || type == "tdD") return 4;
    return 8;
  }

  char* allocate(std::size_t n_bytes) {
    // malloc, not a vector: of the exact size, and not null when empty.
    std::shared_ptr<void> memory(std::malloc(n_bytes), std::free);
    kept_.push_back(memory);
    return static_cast<char*>(memory.get());
  }
  const void* random(std::size_t n_bytes) {
    char* const memory = allocate(n_bytes);
    for (std::size_t at = 0; at < n_bytes; ++at) memory[at] = static_cast<char>(bytes_.next());
    return memory;
  }
  // Numbers of `n_bytes` each, mostly small.
  const void* random_small(std::size_t n_values, std::size_t n_bytes) {
    char* const memory = allocate(n_values * n_bytes);
    for (std::size_t at = 0; at < n_values; ++at) {
      std::memset(memory + at * n_bytes, bytes_.rarely(50) ? 0xFF : 0, n_bytes);
      memory[at * n_bytes] = static_cast<char>(bytes_.below(bytes_.rarely(50) ? 256 : 4));
    }
    return memory;
  }
  // n_values + 1 offsets up to `limit`: in order, or not. None is above it.
  template <class Offset>
  const void* offsets(std::size_t n_values, std::size_t limit) {
    char* const memory = allocate((n_values + 1) * sizeof(Offset));
    const bool is_wild = bytes_.rarely(10);
    std::size_t place = bytes_.below(3);
    for (std::size_t at = 0; at <= n_values; ++at) {
      if (!is_wild) place += bytes_.below(6);
      auto offset = static_cast<Offset>(is_wild ? bytes_.below(limit + 1) : std::min(place, limit));
      if (is_wild && bytes_.rarely(10)) offset = static_cast<Offset>(-1 - offset);
      std::memcpy(memory + at * sizeof(Offset), &offset, sizeof(Offset));
    }
    return memory;
  }
  template <class Offset>
  void build_strings(std::vector<const void*>& buffers, std::size_t n_values) {
    const std::size_t n_bytes = bytes_.below(40);
    buffers.push_back(offsets<Offset>(n_values, n_bytes));
    char* const text = allocate(n_bytes);
    const bool is_ascii = !bytes_.rarely(4);
    for (std::size_t at = 0; at < n_bytes; ++at) {
      text[at] = static_cast<char>(is_ascii ? "abcd"[bytes_.below(4)] : bytes_.next());
    }
    buffers.push_back(text);
  }
  void build_views(std::vector<const void*>& buffers, std::size_t n_values) {
    const std::size_t n_data = bytes_.below(3);
    char* const views = allocate(16 * n_values);
    for (std::size_t at = 0; at < n_values; ++at) {
      char* const view = views + 16 * at;
      std::memset(view, 'v', 16);
      const std::int32_t fields[3] = {
          static_cast<std::int32_t>(bytes_.below(30)) - (bytes_.rarely(30) ? 40 : 0),
          static_cast<std::int32_t>(bytes_.below(3)) - (bytes_.rarely(30) ? 2 : 0),
          static_cast<std::int32_t>(bytes_.below(30)) - (bytes_.rarely(30) ? 40 : 0)};
      std::memcpy(view, &fields[0], 4);
      if (fields[0] > 12) std::memcpy(view + 8, &fields[1], 8);
    }
    buffers.push_back(views);
    auto* const sizes = reinterpret_cast<std::int64_t*>(allocate(8 * n_data));
    for (std::size_t at = 0; at < n_data; ++at) {
      const std::size_t n_bytes = bytes_.below(60);
      sizes[at] = static_cast<std::int64_t>(n_bytes);
      buffers.push_back(random(n_bytes));
    }
    buffers.push_back(sizes);
  }
  void build_map(ArrowArray& array, ArrowSchema& schema, std::vector<const void*>& buffers,
                 std::size_t n_values, int depth) {
    const std::size_t n_entries = bytes_.below(60);
    buffers.push_back(offsets<std::int32_t>(n_values, n_entries + bytes_.below(2)));
    auto& entries = keep(ArrowArray{});
    auto& entry_schema = keep(ArrowSchema{});
    array.n_children = schema.n_children = 1;
    array.children = keep(std::vector<ArrowArray*>{&entries}).data();
    schema.children = keep(std::vector<ArrowSchema*>{&entry_schema}).data();
    build(entries, entry_schema, "+s", n_entries, depth + 1);
    const auto n_needed =
        static_cast<std::size_t>(std::max<std::int64_t>(0, entries.offset + entries.length));
    auto& keys = keep(ArrowArray{});
    auto& key_schema = keep(ArrowSchema{});
    auto& values = keep(ArrowArray{});
    auto& value_schema = keep(ArrowSchema{});
    constexpr const char* kKeyFormats[] = {"u", "u", "U", "vu", "c", "i"};
    build(keys, key_schema, kKeyFormats[bytes_.below(std::size(kKeyFormats))], n_needed, depth + 1);
    build(values, value_schema, kFormats[bytes_.below(std::size(kFormats))], n_needed, depth + 1);
    entries.n_children = entry_schema.n_children = 2;
    entries.children = keep(std::vector<ArrowArray*>{&keys, &values}).data();
    entry_schema.children = keep(std::vector<ArrowSchema*>{&key_schema, &value_schema}).data();
  }

  Bytes& bytes_;
  std::deque<std::shared_ptr<void>> kept_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  Catalogue catalogue;
  for (const char* name : kNames) catalogue.intern(name);
  for (const char* name : {"ab", "ba", "aa", "bb", "abc", "", "vvvv"}) catalogue.intern(name);
  const auto names = catalogue.names();

  Builder builder(bytes);
  ArrowArray array{};
  ArrowSchema schema{};
  const std::size_t n_rows = bytes.rarely(20) ? 1500 : bytes.below(40);
  builder.build(array, schema, "+s", n_rows, 0);
  const auto n_needed =
      static_cast<std::size_t>(std::max<std::int64_t>(0, array.offset + array.length));
  const std::size_t n_columns = bytes.below(5);
  std::vector<ArrowArray*> columns;
  std::vector<ArrowSchema*> schemas;
  for (std::size_t column = 0; column < n_columns; ++column) {
    columns.push_back(&builder.keep(ArrowArray{}));
    schemas.push_back(&builder.keep(ArrowSchema{}));
    builder.build(*columns.back(), *schemas.back(), kFormats[bytes.below(std::size(kFormats))],
                  n_needed, 0);
    schemas.back()->name =
        bytes.rarely(50) ? nullptr : kNames[bytes.rarely(20) ? 0 : column % std::size(kNames)];
  }
  array.n_children = schema.n_children = static_cast<std::int64_t>(n_columns);
  array.children = columns.data();
  schema.children = schemas.data();
  PositionNames position;
  if (bytes.rarely(3)) position = {{"a", "b"}};

  static int n_released;
  n_released = 0;
  array.release = [](ArrowArray* own) {
    ++n_released;
    own->release = nullptr;
  };
  {
    EventBatch batch;
    try {
      encode_arrow(&array, &schema, *names, position, batch);
      require(batch.size() == static_cast<std::size_t>(array.length));
      require(batch.offsets.back() == batch.values.size());
      require(batch.attributes.size() == batch.values.size());
      require(batch.x.size() == (position ? batch.size() : 0) && batch.y.size() == batch.x.size());
      for (std::size_t event = 0; event < batch.size(); ++event) {
        require(batch.offsets[event] <= batch.offsets[event + 1]);
        std::uint32_t seen = 0;
        for (std::size_t at = batch.offsets[event]; at < batch.offsets[event + 1]; ++at) {
          require(batch.attributes[at] < names->size());
          require((seen >> batch.attributes[at] & 1) == 0);
          seen |= 1u << batch.attributes[at];
          require(batch.values[at].kind != Kind::absent);
          require(batch.values[at].kind != Kind::string ||
                  is_valid_utf8(batch.values[at].string()));
        }
      }
    } catch (const EventError&) {
      require(n_released == 1);
    }
    require(array.release == nullptr);
  }
  require(n_released == 1);
  return 0;
}
