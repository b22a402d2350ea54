/* See arm_nnfunctions.h. */
#include "arm_nnfunctions.h"

static int32_t clamp(int32_t value, int32_t lo, int32_t hi) { return value < lo ? lo : value > hi ? hi : value; }

static int32_t rescale(int32_t value, int32_t multiplier, int32_t shift) {
  const int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  const int64_t product = (int64_t)((int32_t)((uint32_t)value << left)) * multiplier + (1 << 30);
  const int32_t high = (int32_t)(product >> 31);
  const int32_t mask = (int32_t)((1u << right) - 1u), rest = high & mask, half = (mask >> 1) + (high < 0 ? 1 : 0);
  return (high >> right) + (rest > half ? 1 : 0);
}

static void scribble(const cmsis_nn_context *ctx) {
  for (int32_t i = 0; i < ctx->size; ++i) {
    ((volatile int8_t *)ctx->buf)[i] = (int8_t)0xA5;
  }
}

arm_cmsis_nn_status arm_convolve_wrapper_s8(const cmsis_nn_context *ctx, const cmsis_nn_conv_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const int8_t *filter, const cmsis_nn_dims *bias_dims, const int32_t *bias,
    const cmsis_nn_dims *output_dims, int8_t *output) {
  const int32_t ih = input_dims->h, iw = input_dims->w, ic = input_dims->c, oc = output_dims->c;
  if (bias_dims->c != oc || filter_dims->n != oc || filter_dims->c != ic) return ARM_CMSIS_NN_ARG_ERROR;
  scribble(ctx);
  for (int32_t n = 0; n < input_dims->n; ++n)
    for (int32_t y = 0; y < output_dims->h; ++y)
      for (int32_t x = 0; x < output_dims->w; ++x)
        for (int32_t o = 0; o < oc; ++o) {
          int32_t acc = bias[o];
          for (int32_t ky = 0; ky < filter_dims->h; ++ky)
            for (int32_t kx = 0; kx < filter_dims->w; ++kx) {
              const int32_t row = y * params->stride.h + ky * params->dilation.h - params->padding.h;
              const int32_t column = x * params->stride.w + kx * params->dilation.w - params->padding.w;
              if (row < 0 || row >= ih || column < 0 || column >= iw) continue;
              for (int32_t i = 0; i < ic; ++i)
                acc += (input[((n * ih + row) * iw + column) * ic + i] + params->input_offset) *
                    filter[((o * filter_dims->h + ky) * filter_dims->w + kx) * ic + i];
            }
          const int32_t scaled = rescale(acc, quant->multiplier[o], quant->shift[o]) + params->output_offset;
          *output++ = (int8_t)clamp(scaled, params->activation.min, params->activation.max);
        }
  return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(const cmsis_nn_context *ctx, const cmsis_nn_dw_conv_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const int8_t *filter, const cmsis_nn_dims *bias_dims, const int32_t *bias,
    const cmsis_nn_dims *output_dims, int8_t *output) {
  const int32_t ih = input_dims->h, iw = input_dims->w, ic = input_dims->c, oc = output_dims->c;
  if (bias_dims->c != oc || filter_dims->c != oc || ic * params->ch_mult != oc) return ARM_CMSIS_NN_ARG_ERROR;
  scribble(ctx);
  for (int32_t n = 0; n < input_dims->n; ++n)
    for (int32_t y = 0; y < output_dims->h; ++y)
      for (int32_t x = 0; x < output_dims->w; ++x)
        for (int32_t o = 0; o < oc; ++o) {
          int32_t acc = bias[o];
          for (int32_t ky = 0; ky < filter_dims->h; ++ky)
            for (int32_t kx = 0; kx < filter_dims->w; ++kx) {
              const int32_t row = y * params->stride.h + ky * params->dilation.h - params->padding.h;
              const int32_t column = x * params->stride.w + kx * params->dilation.w - params->padding.w;
              if (row < 0 || row >= ih || column < 0 || column >= iw) continue;
              acc += (input[((n * ih + row) * iw + column) * ic + o / params->ch_mult] + params->input_offset) *
                  filter[(ky * filter_dims->w + kx) * oc + o];
            }
          const int32_t scaled = rescale(acc, quant->multiplier[o], quant->shift[o]) + params->output_offset;
          *output++ = (int8_t)clamp(scaled, params->activation.min, params->activation.max);
        }
  return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_fully_connected_s8(const cmsis_nn_context *ctx, const cmsis_nn_fc_params *params,
    const cmsis_nn_per_tensor_quant_params *quant, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const int8_t *filter, const cmsis_nn_dims *bias_dims, const int32_t *bias,
    const cmsis_nn_dims *output_dims, int8_t *output) {
  const int32_t depth = filter_dims->n;
  if (bias_dims->c != output_dims->c || filter_dims->c != output_dims->c) return ARM_CMSIS_NN_ARG_ERROR;
  scribble(ctx);
  for (int32_t n = 0; n < input_dims->n; ++n)
    for (int32_t o = 0; o < output_dims->c; ++o) {
      int32_t acc = bias[o];
      for (int32_t k = 0; k < depth; ++k)
        acc += (input[n * depth + k] + params->input_offset) * (filter[o * depth + k] + params->filter_offset);
      const int32_t scaled = rescale(acc, quant->multiplier, quant->shift) + params->output_offset;
      *output++ = (int8_t)clamp(scaled, params->activation.min, params->activation.max);
    }
  return ARM_CMSIS_NN_SUCCESS;
}

static void pool(const cmsis_nn_pool_params *params, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims, int8_t *output, int average) {
  const int32_t ih = input_dims->h, iw = input_dims->w, channels = input_dims->c;
  for (int32_t y = 0; y < output_dims->h; ++y)
    for (int32_t x = 0; x < output_dims->w; ++x)
      for (int32_t c = 0; c < channels; ++c) {
        int32_t sum = 0, count = 0, most = -128;
        for (int32_t ky = 0; ky < filter_dims->h; ++ky)
          for (int32_t kx = 0; kx < filter_dims->w; ++kx) {
            const int32_t row = y * params->stride.h + ky - params->padding.h, column = x * params->stride.w + kx - params->padding.w;
            if (row < 0 || row >= ih || column < 0 || column >= iw) continue;
            const int32_t value = input[(row * iw + column) * channels + c];
            sum += value;
            count += 1;
            most = value > most ? value : most;
          }
        const int32_t mean = sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
        *output++ = (int8_t)clamp(average ? mean : most, params->activation.min, params->activation.max);
      }
}

arm_cmsis_nn_status arm_avgpool_s8(const cmsis_nn_context *ctx, const cmsis_nn_pool_params *params,
    const cmsis_nn_dims *input_dims, const int8_t *input, const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims,
    int8_t *output) {
  scribble(ctx);
  pool(params, input_dims, input, filter_dims, output_dims, output, 1);
  return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_max_pool_s8(const cmsis_nn_context *ctx, const cmsis_nn_pool_params *params,
    const cmsis_nn_dims *input_dims, const int8_t *input, const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims,
    int8_t *output) {
  scribble(ctx);
  pool(params, input_dims, input, filter_dims, output_dims, output, 0);
  return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_elementwise_add_s8(const int8_t *a, const int8_t *b, const int32_t a_offset, const int32_t a_multiplier,
    const int32_t a_shift, const int32_t b_offset, const int32_t b_multiplier, const int32_t b_shift, const int32_t left_shift,
    int8_t *output, const int32_t out_offset, const int32_t out_multiplier, const int32_t out_shift, const int32_t lo,
    const int32_t hi, const int32_t size) {
  for (int32_t i = 0; i < size; ++i) {
    const int32_t x = rescale((a[i] + a_offset) * (1 << left_shift), a_multiplier, a_shift);
    const int32_t y = rescale((b[i] + b_offset) * (1 << left_shift), b_multiplier, b_shift);
    output[i] = (int8_t)clamp(rescale(x + y, out_multiplier, out_shift) + out_offset, lo, hi);
  }
  return ARM_CMSIS_NN_SUCCESS;
}

/* Fixed point as gemmlowp describes it: Q0.31 products, exp of Q5.26 numbers <= 0 by Taylor's series and a table of e^-2^k. */
static int32_t product(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31); }

static int32_t halved(int32_t x, int32_t times) {
  const int32_t mask = (int32_t)((1u << times) - 1u), rest = x & mask, half = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> times) + (rest > half ? 1 : 0);
}

static int32_t exponential(int32_t a) {
  static const int32_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  const int32_t part = (a & 0xFFFFFF) - 0x1000000, x = part * 32 + (1 << 28), x2 = product(x, x);
  const int32_t cubic = product(x2, x), quartic = halved(product(x2, x2), 2);
  const int32_t tail = halved(product(quartic + cubic, 715827883) + x2, 1);
  int32_t result = product(1895147668, x + tail) + 1895147668;
  for (int32_t k = 0; k < 7; ++k)
    if ((part - a) & (1 << (24 + k))) result = product(result, factors[k]);
  return a == 0 ? INT32_MAX : result;
}

static int32_t reciprocal(int32_t a) {
  const int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) >> 1);
  int32_t x = product(half, -1010580540) + 1515870810;
  for (int32_t i = 0; i < 3; ++i) x += product(x, (1 << 29) - product(half, x)) * 4;
  return x > INT32_MAX / 2 ? INT32_MAX : x * 2;
}

static void softmax(const int8_t *input, int32_t rows, int32_t depth, int32_t multiplier, int32_t shift, int32_t diff_min,
    int8_t *bytes, int16_t *words) {
  for (int32_t r = 0; r < rows; ++r, input += depth) {
    int32_t most = -128, sum = 0, zeros = 0;
    for (int32_t c = 0; c < depth; ++c) most = input[c] > most ? input[c] : most;
    for (int32_t c = 0; c < depth; ++c)
      if (input[c] - most >= diff_min) sum += halved(exponential(product((input[c] - most) * (1 << shift), multiplier)), 12);
    while (!(((uint32_t)sum << zeros) & 0x80000000u)) ++zeros;
    const int32_t scale = reciprocal((int32_t)(((uint32_t)sum << zeros) - 0x80000000u)), right = 12 - zeros + (words ? 15 : 23);
    for (int32_t c = 0; c < depth; ++c) {
      const int32_t e = input[c] - most >= diff_min ? exponential(product((input[c] - most) * (1 << shift), multiplier)) : 0;
      const int32_t value = halved(product(scale, e), right);
      if (words) *words++ = (int16_t)clamp(value - 32768, -32768, 32767);
      else *bytes++ = (int8_t)clamp(value - 128, -128, 127);
    }
  }
}

void arm_softmax_s8(const int8_t *input, const int32_t rows, const int32_t depth, const int32_t multiplier, const int32_t shift,
    const int32_t diff_min, int8_t *output) {
  softmax(input, rows, depth, multiplier, shift, diff_min, output, 0);
}

void arm_softmax_s8_s16(const int8_t *input, const int32_t rows, const int32_t depth, const int32_t multiplier,
    const int32_t shift, const int32_t diff_min, int16_t *output) {
  softmax(input, rows, depth, multiplier, shift, diff_min, 0, output);
}
