// SPDX-License-Identifier: Apache-2.0
// A thin C++17 wrapper around the generated C interface: views of a model's tensors, and a run. Header only, no heap, no exceptions.
//
//   #include "kws.h"
//   #include "aot/model.hpp"
//   const auto in = AOT_INPUT(kws, KWS, 0);               // aot::span<int8_t>: the slot in the workspace
//   const auto q = AOT_INPUT_QUANTIZATION(KWS, 0);
//   for (std::size_t i = 0; i < in.size(); i++) in[i] = q.quantize<std::int8_t>(features[i]);
//   if (AOT_RUN(kws) == AOT_OK) best = aot::argmax(AOT_OUTPUT(kws, KWS, 0));
//
// For models compiled with --io arena (the default).
#ifndef AOT_MODEL_HPP
#define AOT_MODEL_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "aot/status.h"

namespace aot {

// What std::span<T> of C++20 is: a pointer and a length.
template <typename T>
class span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr span() noexcept = default;
  constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <std::size_t N>
  constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}
  constexpr operator span<const T>() const noexcept { return {data_, size_}; }

  constexpr T *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }

 private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

// real = scale * (q - zero_point)
struct quantization {
  float scale;
  std::int32_t zero_point;

  template <typename T>
  constexpr float dequantize(T q) const noexcept {
    return scale * static_cast<float>(static_cast<std::int32_t>(q) - zero_point);
  }

  // The nearest value of T; halves go away from zero, what lies outside becomes the nearest end.
  template <typename T>
  constexpr T quantize(float real) const noexcept {
    const std::int32_t low = limit<T>(false) - zero_point, high = limit<T>(true) - zero_point;
    const float scaled = real / scale;
    const float rounded = scaled + (scaled < 0.0f ? -0.5f : 0.5f);
    std::int32_t q = low; /* also for NaN */
    if (rounded >= static_cast<float>(high)) {
      q = high;
    } else if (rounded > static_cast<float>(low)) {
      q = static_cast<std::int32_t>(rounded);
    }
    return static_cast<T>(q + zero_point);
  }

 private:
  template <typename T>
  static constexpr std::int32_t limit(bool highest) noexcept {
    static_assert(std::is_integral_v<T> && sizeof(T) <= 2, "8 or 16 bits");
    constexpr std::int32_t count = std::int32_t{1} << (8 * sizeof(T));
    constexpr std::int32_t low = std::is_signed_v<T> ? -count / 2 : 0;
    return highest ? low + count - 1 : low;
  }
};

// The first of the largest elements.
template <typename T>
constexpr std::size_t argmax(span<T> values) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); i++) {
    if (values[best] < values[i]) best = i;
  }
  return best;
}

namespace detail {
template <typename T>
constexpr span<T> slot(T *data, std::size_t bytes) noexcept {
  return {data, bytes / sizeof(T)};
}
}  // namespace detail

}  // namespace aot

// The slot of tensor i in the workspace of a model: its prefix in lower and in upper case, and i as a literal.
#define AOT_INPUT(name, NAME, i) ::aot::detail::slot(name##_input_##i(), NAME##_INPUT_##i##_SIZE)
#define AOT_OUTPUT(name, NAME, i) ::aot::detail::slot(name##_output_##i(), NAME##_OUTPUT_##i##_SIZE)
#define AOT_INPUT_QUANTIZATION(NAME, i) ::aot::quantization{NAME##_INPUT_##i##_SCALE, NAME##_INPUT_##i##_ZERO_POINT}
#define AOT_OUTPUT_QUANTIZATION(NAME, i) ::aot::quantization{NAME##_OUTPUT_##i##_SCALE, NAME##_OUTPUT_##i##_ZERO_POINT}
// The next run of a model with state begins anew.
#define AOT_RESET(name) name##_reset()
// Runs the model on the slots of its workspace: AOT_OK or a negative aot_status.
#define AOT_RUN(name)                                \
  ([]() noexcept {                                   \
    const name##_inputs aot_slots_in{};              \
    const name##_outputs aot_slots_out{};            \
    return name##_run(&aot_slots_in, &aot_slots_out); \
  }())

#endif
