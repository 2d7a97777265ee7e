#include "block_bitmap_cuda.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "device_match.hpp"
#include "engines/block_bitmap.hpp"
#include "engines/block_bitmap/lines.hpp"
#include "tamis/error.hpp"

namespace tamis {
namespace cuda {
namespace {

using namespace block_bitmap;

static_assert(kBlockFilters == kLineBits && kBlockTupleSize == kMaxTupleSize);
static_assert(kBlockRows == LinesView::kRows && kBlockCells == LinesView::kCells);
static_assert(sizeof(Line) == kLineParts * sizeof(LinePart));

constexpr std::size_t kCandidatesPerEvent = 32;

std::size_t padded(std::size_t most_events) {
  return block_events_padded(
      static_cast<std::uint32_t>(std::clamp<std::size_t>(most_events, 1, kBlockMostEvents)));
}

std::vector<bool> used_attributes(const FilterTable& table) {
  std::vector<bool> is_used(table.n_attributes());
  for (FilterIdx idx = 0; idx < table.size(); ++idx) {
    const FilterTable::Filter& filter = table.filter(idx);
    for (std::uint32_t at = 0; at < filter.constraints.count; ++at) {
      is_used[table.constraint(filter.constraints.first + at).attribute] = true;
    }
  }
  return is_used;
}

// The bytes of one block out of the rows of its tuple.
BlockSummary summary_of(const LinesView& view, const Tuple& tuple, std::uint32_t in_tuple) {
  BlockSummary summary;
  std::memset(&summary, 0xFF, sizeof summary);
  const std::size_t n_words = LinesView::words_of(tuple);
  const std::uint64_t* word = view.summaries.data() + tuple.first_summary + in_tuple / 8;
  for (std::uint32_t of = 0; of < tuple.n_attributes; ++of) {
    for (std::size_t row = 0; row < kBlockRows; ++row, word += n_words) {
      // The filters of a tuple need its attributes.
      const bool is_there = row != kSummaryCells;
      summary.words[of][row] =
          is_there ? static_cast<std::uint8_t>(*word >> (in_tuple % 8 * 8)) : std::uint8_t{0};
    }
  }
  return summary;
}

template <typename To, typename From>
DeviceArray<To> to_device_as(std::span<const From> items, Stream stream) {
  static_assert(sizeof(From) % sizeof(To) == 0);
  DeviceArray<To> copy(items.size_bytes() / sizeof(To));
  if (items.empty()) return copy;
  copy_to_device(copy.data(), items.data(), items.size_bytes(), stream);
  synchronize(stream);
  return copy;
}

}  // namespace

BlockBitmapOnDevice::BlockBitmapOnDevice(const FilterTable& table, const Index& index) {
  const LinesView view = view_of(index);
  const std::vector<bool> is_used = used_attributes(table);
  n_used_ = static_cast<std::size_t>(std::count(is_used.begin(), is_used.end(), true));
  ranks_.emplace(view.ranks, is_used, stream_);
  std::vector<BlockTuple> tuples;
  std::vector<FilterBlock> blocks;
  std::vector<BlockSummary> summaries;
  for (const Tuple& tuple : view.tuples) {
    BlockTuple of{{}, tuple.n_attributes, tuple.first_column, tuple.n_columns};
    std::copy_n(tuple.attributes, kMaxTupleSize, of.attributes);
    view_.most_columns = std::max(view_.most_columns, tuple.n_columns);
    for (std::uint32_t in_tuple = 0; in_tuple < tuple.n_blocks; ++in_tuple) {
      const std::uint32_t block = tuple.first_block + in_tuple;
      blocks.push_back({tuple.first_line + std::uint64_t{in_tuple} * tuple.n_columns * kBlockCells,
                        static_cast<std::uint32_t>(tuples.size()), view.n_filters_of[block],
                        view.block_records[block].place_of(0), view.block_records[block].stride});
      summaries.push_back(summary_of(view, tuple, in_tuple));
    }
    tuples.push_back(of);
  }
  scales_ = to_device(view.scales, stream_);
  tuples_ = to_device(std::span<const BlockTuple>(tuples), stream_);
  columns_ = to_device(view.columns, stream_);
  blocks_ = to_device(std::span<const FilterBlock>(blocks), stream_);
  summaries_ = to_device(std::span<const BlockSummary>(summaries), stream_);
  lines_ = to_device_as<LinePart>(view.lines, stream_);
  records_ = to_device_as<std::uint32_t>(view.records, stream_);
  view_.attributes = ranks_->attributes();
  view_.scales = scales_.data();
  view_.tuples = tuples_.data();
  view_.columns = columns_.data();
  view_.blocks = blocks_.data();
  view_.summaries = summaries_.data();
  view_.lines = lines_.data();
  view_.records = records_.data();
  view_.n_attributes = static_cast<std::uint32_t>(table.n_attributes());
  view_.n_tuples = static_cast<std::uint32_t>(tuples.size());
  view_.n_blocks = static_cast<std::uint32_t>(blocks.size());
}

std::size_t BlockBitmapOnDevice::n_bytes() const {
  return sizeof(*this) + ranks_->n_bytes() + scales_.n_bytes() + tuples_.n_bytes() +
         columns_.n_bytes() + blocks_.n_bytes() + summaries_.n_bytes() + lines_.n_bytes() +
         records_.n_bytes();
}

std::size_t BlockBitmapBuffers::most_events(const BlockBitmapOnDevice& index) {
  constexpr std::size_t kMost = 1 << 16, kMostBytes = std::size_t{1} << 28;
  const BlockBitmapIndexView& view = index.view();
  const std::size_t n_bytes =
      std::size_t{view.n_attributes} *
          (sizeof *BlockBitmapWork{}.ranks + sizeof *BlockBitmapWork{}.rows) +
      view.n_tuples * sizeof(ColumnCells) + kCandidatesPerEvent * sizeof(BlockCandidate);
  return std::clamp<std::size_t>(kMostBytes / n_bytes, 1, kMost);
}

BlockBitmapBuffers::BlockBitmapBuffers(const BlockBitmapOnDevice& index, std::size_t most_events)
    : most_events_(padded(most_events)),
      ranks_(most_events_ * index.view().n_attributes),
      is_left_(most_events_),
      rows_(most_events_ * index.view().n_attributes),
      columns_(most_events_ * index.view().n_tuples),
      candidates_(most_events_ * kCandidatesPerEvent),
      counts_(sizeof *BlockBitmapWork{}.n_candidates) {}

BlockBitmapWork BlockBitmapBuffers::next_work(const NumberEvents& events) {
  // Threads for all of their ranks have 32-bit numbers.
  const std::size_t n_ranks = std::max<std::size_t>(1, ranks_.size() / most_events_);
  const std::size_t n_most = std::min<std::size_t>(
      {most_events_, kBlockMostEvents,
       std::numeric_limits<std::uint32_t>::max() / n_ranks - kBlockEventsPerThread});
  if (events.n_events > n_most || events.packed != nullptr) {
    throw ArgumentError("a launch must have at most " + std::to_string(n_most) +
                        " events by offsets");
  }
  return {ranks_.data(),      rows_.data(),
          is_left_.data(),    columns_.data(),
          candidates_.data(), reinterpret_cast<std::uint64_t*>(counts_.next()),
          candidates_.size(), static_cast<std::uint32_t>(most_events_)};
}

}  // namespace cuda

namespace {

using namespace cuda;

constexpr std::size_t kMostAttributes = 64;  // of an event that the device takes
using BlockBitmapCudaScratch = DeviceScratch<BlockBitmapBuffers>;

class BlockBitmapCudaIndex final : public Index {
 public:
  BlockBitmapCudaIndex(std::shared_ptr<const FilterTable> table, const Parameters& parameters)
      : table_(std::move(table)),
        on_host_(build_block_bitmap(table_, host_parameters(parameters))),
        on_device_(*table_, *on_host_) {}

  std::unique_ptr<Scratch> make_scratch() const override {
    const std::size_t n_most = BlockBitmapBuffers::most_events(on_device_);
    return std::make_unique<BlockBitmapCudaScratch>(
        n_most, std::min(kMostAttributes, on_device_.n_used()), false,
        BlockBitmapBuffers(on_device_, n_most), on_host_->make_scratch());
  }
  void match(const EventBatch& events, std::size_t begin, std::size_t end, Scratch& scratch,
             Collector& out) const override {
    match_on_device(on_device_, *table_, *on_host_, events, begin, end,
                    static_cast<BlockBitmapCudaScratch&>(scratch), out);
  }
  bool reads_columns() const override { return true; }
  std::size_t n_bytes() const override {
    return sizeof(*this) + on_device_.n_bytes() + on_host_->n_bytes();
  }

 private:
  static Parameters host_parameters(const Parameters& given) {
    Parameters parameters = given;
    parameters.insert({"layout", block_bitmap::kLines});
    return parameters;
  }

  std::shared_ptr<const FilterTable> table_;
  std::unique_ptr<Index> on_host_;
  BlockBitmapOnDevice on_device_;
};

}  // namespace

std::unique_ptr<Index> build_block_bitmap_cuda(std::shared_ptr<const FilterTable> table,
                                               const Parameters& parameters) {
  return std::make_unique<BlockBitmapCudaIndex>(std::move(table), parameters);
}

}  // namespace tamis
