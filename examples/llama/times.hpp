// Where the time of a decode step goes, without cutting what a backend computes as one: the evaluation callback is
// asked to stop before and after the sparse part of each layer, from the first node that reads a key cache to the
// attention's output, and nowhere else.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "session.hpp"

namespace seriatim_llama {

class LayerTimes {
 public:
  // To be set in SessionOptions, with the object as data.
  static bool callback(ggml_tensor* tensor, bool ask, void* times);

  // The next call is looked at and not timed: it must have the shapes of those that follow.
  void learn();
  // Ends learning; the calls from here on are timed.
  void start();

  int parts() const { return static_cast<int>(spans_.size()); }
  // Seconds per call of all sparse parts together, in the order of the calls.
  std::vector<double> seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Node {
    bool opens = false;    // computes and reads a key cache
    bool selects = false;  // TOP_K, or attention that is told of a selection
    bool closes = false;   // attention's output
  };
  struct Span {
    std::size_t before, last;  // node numbers: the one ahead of the part, and its last
  };

  enum class State { kOff, kLearning, kTiming } state_ = State::kOff;
  std::vector<Node> nodes_;
  std::vector<Span> spans_;
  std::vector<char> stops_;  // by node number
  std::size_t asked_ = 0;    // nodes of this call that were asked about
  std::size_t stopped_ = 0;  // boundaries of this call that were reached
  std::vector<Clock::time_point> stamps_;
};

}  // namespace seriatim_llama
