#include "seriatim/oracle.hpp"

#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "seriatim_rule.h"

using namespace seriatim;
using namespace seriatim::capi;

seriatim_status seriatim_dense_attend(const seriatim_geometry* geometry, std::int64_t visible,
                                      const seriatim_tensor* query, const seriatim_tensor* keys,
                                      const seriatim_tensor* values, const float* sinks, std::int64_t sink_count,
                                      const seriatim_tensor* output, float* lse, std::int64_t lse_count,
                                      seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    ConstTensor asked;
    DenseTokens tokens;
    std::span<const float> sink_logits;
    Tensor out;
    std::span<float> sums;
    if (Status s = take_tensor("query", query, asked); !s.ok()) return s;
    if (Status s = take_tensor("keys", keys, tokens.keys); !s.ok()) return s;
    if (Status s = take_tensor_or_null("values", values, tokens.values); !s.ok()) return s;
    if (Status s = take_array("sinks", sinks, sink_count, sink_logits); !s.ok()) return s;
    if (Status s = take_tensor("output", output, out); !s.ok()) return s;
    if (Status s = take_array("lse", lse, lse_count, sums); !s.ok()) return s;
    return dense_attend(geometry->geometry, visible, asked, tokens, sink_logits, out, sums);
  });
}
