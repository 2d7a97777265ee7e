// Work that is kept instead of done, between begin_capture and end_capture.
#pragma once

#include <functional>
#include <vector>

namespace tamis::cuda {

using Recording = std::vector<std::function<void()>>;
inline thread_local Recording* recording = nullptr;  // null: work is done

template <typename Work>
void do_or_record(const Work& work) {
  if (recording != nullptr) {
    recording->emplace_back(work);
  } else {
    work();
  }
}

}  // namespace tamis::cuda
