// A matcher in a directory: opened, logged, checkpointed, saved.
#include "state.hpp"

namespace tamis {

std::string Matcher::State::encode_rows(std::span<const NewSubscription> rows) {
  std::vector<LogSubscribe> records;
  records.reserve(rows.size());
  for (const NewSubscription& row : rows) {
    records.push_back({row.id, row.predicate, row.subscriber});
  }
  return encode_subscribe(records);
}

std::string Matcher::State::encode_moves(std::span<const Move> rows) {
  std::vector<LogMove> records;
  records.reserve(rows.size());
  for (const Move& row : rows) records.push_back({row.id, row.x, row.y, row.area});
  return encode_move(records);
}

void Matcher::State::open_journal() {
  const StorageOptions& storage = *options.storage;
  Journal::Visitor visitor;
  visitor.begin = [this](Space space) { begin_anew(space); };
  visitor.image = [&](const std::string& path, std::uint64_t n_bytes) {
    const std::shared_ptr<const Image> image = Image::open(path, n_bytes);
    if (storage.verifies) image->check_all();
    adopt(image);
  };
  visitor.record = [this](const LogRecord& record, const std::string& path) {
    replay(record, path);
  };
  std::unique_ptr<Journal> journal;
  if (storage.is_read_only) {
    sizes_when_read_ = Journal::read(storage.directory, options.space, visitor);
  } else {
    journal =
        Journal::open(storage.directory, storage.create, storage.policy, options.space, visitor);
  }
  const std::lock_guard lock(writer_);
  journal_ = std::move(journal);
  if (storage.is_read_only) closed_because_ = kReadOnly;
}

// Nothing is there yet, or what a reader had read before the directory changed under it.
void Matcher::State::begin_anew(Space space) {
  std::unique_lock lock(writer_);
  // A merge that is under way reads the old store, and would put what it made into the new state.
  segments_.clear();
  merger_is_idle_.wait(lock, [this] { return !is_merging(); });
  merge_error_ = nullptr;
  space_ = space;
  store_ = std::make_shared<Store>();
  catalogue_ = Catalogue();
  segments_.clear();
  delta_ = nullptr;
  plans_.clear();
  stale_.clear();
  id_type_ = IdType::none;
  publish();
}

void Matcher::State::adopt(const std::shared_ptr<const Image>& image) {
  const std::lock_guard lock(writer_);
  OpenedImage opened = open_image(image, space_, choice_ ? &*choice_ : nullptr, naive_);
  store_ = std::move(opened.store);
  segments_ = std::move(opened.segments);
  id_type_ = opened.id_type;
  for (const std::string& name : opened.names) catalogue_.intern(name);
  publish();
}

void Matcher::State::replay(const LogRecord& record, const std::string& path) {
  const auto place = [&] { return "the record at byte " + std::to_string(record.offset); };
  if (record.kind == LogRecord::Kind::unsubscribe) {
    try {
      unsubscribe(record.ids);
    } catch (const UnknownIdError& error) {
      throw StorageError(path, place() + " cannot be applied: " + error.what());
    }
    return;
  }
  std::vector<RowError> errors;
  if (record.kind == LogRecord::Kind::move) {
    std::vector<Move> rows;
    rows.reserve(record.moves.size());
    for (const LogMove& row : record.moves) rows.push_back({row.id, row.x, row.y, row.area});
    errors = move(rows);
  } else {
    std::vector<NewSubscription> rows;
    rows.reserve(record.rows.size());
    for (const LogSubscribe& row : record.rows) {
      rows.push_back({row.id, row.predicate, row.subscriber});
    }
    errors = subscribe(rows);
  }
  if (!errors.empty()) {
    throw StorageError(path, place() + " cannot be applied: " + errors[0].reason);
  }
}

void Matcher::State::run_checkpoint(std::unique_lock<std::mutex>& lock) {
  is_checkpointing_ = true;
  is_checkpoint_asked_ = false;
  try {
    journal_->rotate();
    const std::shared_ptr<const Snapshot> snapshot = this->snapshot();
    lock.unlock();
    journal_->write_checkpoint([&](ImageWriter& image) { save_snapshot(*snapshot, image); });
    lock.lock();
    checkpoint_error_.clear();
  } catch (const std::exception& error) {
    // The logs so far still give the state; the journal asks again when they have grown.
    if (!lock.owns_lock()) lock.lock();
    journal_->put_off_checkpoint();
    checkpoint_error_ = error.what();
  }
  is_checkpointing_ = false;
  ++n_checkpoints_;
  merger_is_idle_.notify_all();
}

void Matcher::State::save(const std::string& directory) {
  {
    // With all indexes, if they can be built.
    std::unique_lock lock(writer_);
    wait_until_merged(lock);
  }
  const std::shared_ptr<const Snapshot> saved = snapshot();
  Journal::save(directory, space_, [&](ImageWriter& image) { save_snapshot(*saved, image); });
}

void Matcher::State::checkpoint() {
  std::unique_lock lock(writer_);
  if (closed_because_ != nullptr) throw ArgumentError(closed_because_);
  if (!journal_) throw ArgumentError("only a matcher that was opened from a directory has one");
  seal_delta();
  publish();
  is_checkpoint_asked_ = true;
  const std::size_t n_before = n_checkpoints_ + (is_checkpointing_ ? 1 : 0);
  wake_merger();
  merger_is_idle_.wait(lock,
                       [&] { return n_checkpoints_ > n_before || closed_because_ != nullptr; });
  if (n_checkpoints_ <= n_before) throw ArgumentError(closed_because_);
  if (!checkpoint_error_.empty()) {
    throw StorageError(options.storage->directory, "the checkpoint failed: " + checkpoint_error_);
  }
}

void Matcher::State::close() {
  std::unique_ptr<Journal> journal;
  {
    std::unique_lock lock(writer_);
    if (closed_because_ == nullptr) closed_because_ = kClosed;
    merger_is_idle_.wait(lock, [this] { return !is_checkpointing_; });
    is_checkpoint_asked_ = false;
    journal = std::move(journal_);
  }
  merger_is_idle_.notify_all();
  if (journal) journal->sync();
}

}  // namespace tamis
