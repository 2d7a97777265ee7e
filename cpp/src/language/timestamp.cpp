#include "timestamp.hpp"

#include <chrono>

namespace tamis {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool is_done() const { return at_ == text_.size(); }
  bool take(char c) {
    if (is_done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // Exactly `n_digits` digits, or -1.
  int digits(int n_digits) {
    int value = 0;
    for (int digit = 0; digit < n_digits; ++digit) {
      if (!has_digit()) return -1;
      value = value * 10 + (text_[at_++] - '0');
    }
    return value;
  }
  bool has_digit() const { return !is_done() && text_[at_] >= '0' && text_[at_] <= '9'; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::int64_t> parse_timestamp(std::string_view text) {
  using namespace std::chrono;
  Reader reader(text);
  const int y = reader.digits(4);
  if (!reader.take('-')) return std::nullopt;
  const int m = reader.digits(2);
  if (!reader.take('-')) return std::nullopt;
  const int d = reader.digits(2);
  if (y < 1 || m < 1 || d < 1) return std::nullopt;
  const year_month_day date{year{y}, month{static_cast<unsigned>(m)},
                            day{static_cast<unsigned>(d)}};
  if (!date.ok()) return std::nullopt;
  std::int64_t micros = sys_days{date}.time_since_epoch().count() * 86'400'000'000;
  if (reader.is_done()) return micros;

  if (!reader.take('T') && !reader.take(' ') && !reader.take('t')) return std::nullopt;
  const int hour = reader.digits(2);
  if (!reader.take(':')) return std::nullopt;
  const int minute = reader.digits(2);
  int second = 0;
  std::int64_t fraction = 0;
  if (reader.take(':')) {
    second = reader.digits(2);
    if (reader.take('.')) {
      std::int64_t scale = 100'000;
      if (!reader.has_digit()) return std::nullopt;
      while (reader.has_digit()) {
        if (scale == 0) return std::nullopt;  // finer than a microsecond
        fraction += scale * reader.digits(1);
        scale /= 10;
      }
    }
  }
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
    return std::nullopt;
  }
  micros += ((hour * 60 + minute) * 60 + second) * std::int64_t{1'000'000} + fraction;
  if (reader.is_done() || ((reader.take('Z') || reader.take('z')) && reader.is_done())) {
    return micros;
  }
  const bool is_east = reader.take('+');
  if (!is_east && !reader.take('-')) return std::nullopt;
  const int zone_hour = reader.digits(2);
  reader.take(':');
  const int zone_minute = reader.digits(2);
  if (zone_hour < 0 || zone_hour > 23 || zone_minute < 0 || zone_minute > 59 || !reader.is_done()) {
    return std::nullopt;
  }
  const std::int64_t zone = (zone_hour * 60 + zone_minute) * std::int64_t{60'000'000};
  return is_east ? micros - zone : micros + zone;
}

}  // namespace tamis
