#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

seriatim_status seriatim_cache_begin(seriatim_cache* cache, seriatim_transaction** transaction, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}, {"transaction", transaction}}); !s.ok()) return s;
    auto begun = cache->cache->begin();
    if (!begun.ok()) return begun.status();
    *transaction = new seriatim_transaction{cache->allocator, std::move(*begun)};
    return {};
  });
}

seriatim_status seriatim_transaction_append(seriatim_transaction* transaction, std::int64_t sequence,
                                            std::int64_t layer, std::int64_t first_position,
                                            const seriatim_tensor* keys, const seriatim_tensor* values,
                                            const seriatim_tensor* index_keys, const std::int32_t* coordinates,
                                            seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"transaction", transaction}}); !s.ok()) return s;
    TokenBatch tokens;
    tokens.first_position = first_position;
    tokens.coordinates = take_coordinates(coordinates);
    if (Status s = take_tensor_or_null("keys", keys, tokens.keys); !s.ok()) return s;
    if (Status s = take_tensor_or_null("values", values, tokens.values); !s.ok()) return s;
    if (Status s = take_tensor_or_null("index_keys", index_keys, tokens.index_keys); !s.ok()) return s;
    return transaction->transaction.append(sequence, layer, tokens);
  });
}

seriatim_status seriatim_transaction_keep(seriatim_transaction* transaction, std::int64_t sequence, std::int64_t tokens,
                                          seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"transaction", transaction}}); !s.ok()) return s;
    return transaction->transaction.keep(sequence, tokens);
  });
}

seriatim_status seriatim_transaction_commit(seriatim_transaction* transaction, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"transaction", transaction}}); !s.ok()) return s;
    return transaction->transaction.commit();
  });
}

seriatim_status seriatim_transaction_commit_prefix(seriatim_transaction* transaction, std::int64_t tokens,
                                                   seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"transaction", transaction}}); !s.ok()) return s;
    return transaction->transaction.commit_prefix(tokens);
  });
}

seriatim_status seriatim_transaction_rollback(seriatim_transaction* transaction, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"transaction", transaction}}); !s.ok()) return s;
    transaction->transaction.rollback();
    return {};
  });
}

void seriatim_transaction_destroy(seriatim_transaction* transaction) { delete transaction; }
