// seriatim_rule.h: what an engine does not call in its step: the rule on bare arrays, pooling and scores on bare
// tensors, the dense oracle, and a look into a cache's file. For those who check an engine, or have parts of one
// already.
//
// C99 alone; also valid C++. The conventions are those of seriatim.h.
#ifndef SERIATIM_RULE_H_
#define SERIATIM_RULE_H_

#include "seriatim.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- The rule on bare arrays. Nothing is allocated. `query` is the number that errors name; -1: none.

// Scratch entries (int32) for `groups` scores; -1 where groups is negative.
SERIATIM_API int64_t seriatim_select_scratch_entries(int64_t groups);
// The min(keep, groups) best groups, score descending and then group ascending, handed out ascending.
// Gives   chosen[0 .. *count); what lies past them is untouched. Fewer than min(keep, groups) where NaN groups
//         are excluded. chosen_scores[0 .. *count) [chosen_entries]: their scores, or NULL.
// Errors  INVALID_ARGUMENT: keep negative, chosen or scratch too small. NOT_A_NUMBER: index = the first NaN's group.
SERIATIM_API seriatim_status seriatim_select(const float* scores, int64_t groups, int64_t keep, int32_t nan_policy,
                                             int32_t* scratch, int64_t scratch_entries, int32_t* chosen,
                                             int64_t chosen_entries, float* chosen_scores, int64_t query,
                                             int64_t* count, seriatim_error* error);
// Chosen groups -> positions, the raw tail last.
// Takes   groups strictly ascending; row of row_capacity entries or more
// Gives   row[0 .. *count) ascending, -1 up to row_entries
// Errors  INVALID_ARGUMENT: the run, a group (index = its place in groups), sizes.
SERIATIM_API seriatim_status seriatim_expand_row(const seriatim_geometry* geometry, int64_t anchor, int64_t visible,
                                                 const int32_t* groups, int64_t group_count, int32_t* row,
                                                 int64_t row_entries, int64_t query, int64_t* count,
                                                 seriatim_error* error);
// Errors  INVALID_ARGUMENT: visible negative or above 2^31.
SERIATIM_API seriatim_status seriatim_plan_row_scratch_entries(const seriatim_geometry* geometry, int64_t visible,
                                                               int64_t* entries, seriatim_error* error);
// Both: scores of all floor(visible / r) groups -> row. Gives and errors as seriatim_select and seriatim_expand_row.
SERIATIM_API seriatim_status seriatim_plan_row(const seriatim_geometry* geometry, int64_t anchor, int64_t visible,
                                               const float* scores, int64_t score_count, int32_t nan_policy,
                                               int32_t* scratch, int64_t scratch_entries, int32_t* row,
                                               int64_t row_entries, int64_t query, int64_t* count,
                                               seriatim_error* error);
// What attention demands of any row.
// Errors  NOT_CHRONOLOGICAL: index = the entry. INVALID_ARGUMENT: an entry outside the run.
SERIATIM_API seriatim_status seriatim_check_ascending(int64_t anchor, int64_t visible, const int32_t* row,
                                                      int64_t count, int64_t query, seriatim_error* error);
// What the contract demands of a canonical row besides. exact_width 0 admits rows made shorter by excluded NaN groups.
SERIATIM_API seriatim_status seriatim_check_row(const seriatim_geometry* geometry, int64_t anchor, int64_t visible,
                                                const int32_t* row, int64_t count, int32_t exact_width, int64_t query,
                                                seriatim_error* error);

// ---- Index keys and scores on bare tensors. coordinates: [T][3] M-RoPE coordinates, or NULL for text.

// Takes   index_keys [T, index_dim] in index_dtype, of which the first opens a group; index_norm_weight [index_dim] f32
// Gives   pooled [floor(T / r), index_dim] in index_dtype
// Errors  INVALID_ARGUMENT. NOT_FINITE: row = token, index = dim. OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_pool_keys(const seriatim_geometry* geometry,
                                                const seriatim_tensor* index_norm_weight,
                                                const seriatim_tensor* index_keys, int64_t first_position,
                                                const int32_t* coordinates, const seriatim_tensor* pooled,
                                                seriatim_error* error);
// Takes   index_queries [index_heads, index_dim], of one query, and pooled [G, index_dim] in index_dtype, finished;
//         index_head_weights [index_heads] f32, or NULL
// Gives   scores[0 .. G). Errors  INVALID_ARGUMENT. OUT_OF_MEMORY. Memory  the pooled keys once more, freed at the end.
SERIATIM_API seriatim_status seriatim_score_groups(const seriatim_geometry* geometry,
                                                   const seriatim_tensor* index_queries,
                                                   const seriatim_tensor* index_head_weights,
                                                   const seriatim_tensor* pooled, float* scores, int64_t score_count,
                                                   seriatim_error* error);

// ---- Oracle: dense causal attention by plain definitions, up to B + r - 1 tokens (a sparse row holds all of them)

// Takes   query [query_heads, head_dim]; keys [T, kv_heads, head_dim]; values [T, kv_heads, value_dim] or NULL (alias);
//         visible of the T; sinks as seriatim_attend
// Gives   output [query_heads, value_dim]; lse [lse_count] = [query_heads], or NULL with 0
// Errors  INVALID_ARGUMENT: first of all visible above B + r - 1. NOT_FINITE. OUT_OF_MEMORY. OVERFLOW as
//         seriatim_attend.
SERIATIM_API seriatim_status seriatim_dense_attend(const seriatim_geometry* geometry, int64_t visible,
                                                   const seriatim_tensor* query, const seriatim_tensor* keys,
                                                   const seriatim_tensor* values, const float* sinks,
                                                   int64_t sink_count, const seriatim_tensor* output, float* lse,
                                                   int64_t lse_count, seriatim_error* error);

// ---- A cache's file, without making a cache

typedef struct seriatim_cache_file_info {
  size_t struct_size;
  int64_t sequences, layers, page_tokens, token_pages, pooled_pages, token_page_bytes, pooled_page_bytes, file_bytes;
  int32_t mappable;  // 1: pages lie at multiples of 64 bytes
  int32_t reserved;
} seriatim_cache_file_info;

typedef struct seriatim_saved_sequence {
  int64_t id, anchor, tokens;
} seriatim_saved_sequence;

SERIATIM_API void seriatim_cache_file_info_init(seriatim_cache_file_info* info);
// Reads and checks all but the pages.
// Gives   info; the first `entries` sequences, or NULL with 0; the file's geometry, or NULL
// Errors  IO. CORRUPT: argument is the section. UNSUPPORTED. OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_cache_file_read(const char* path, seriatim_cache_file_info* info,
                                                      seriatim_saved_sequence* sequences, int64_t entries,
                                                      seriatim_geometry** geometry, seriatim_error* error);
// Besides, every page's checksum and elements, and pooled keys against raw ones.
// Errors  as seriatim_cache_file_read. CORRUPT, NOT_FINITE: row = page or sequence.
SERIATIM_API seriatim_status seriatim_cache_file_verify(const char* path, seriatim_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // SERIATIM_RULE_H_
