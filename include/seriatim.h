// seriatim.h: the C ABI of Seriatim, deterministic sparse attention: what an engine calls. C99 alone; also valid C++.
// seriatim_rule.h has the rule on bare arrays, the dense oracle and a look into a cache's file.
//
// Conventions, which hold for every function unless it says otherwise
//  1. Handles are opaque. What X_create, _begin, _snapshot or _copy gives is the caller's until X_destroy, which takes
//     NULL too. A handle keeps alive what it was made from: destroy them in any order.
//  2. A function that can fail returns a status: SERIATIM_OK (0) or what went wrong. Its last parameter is a
//     caller-owned seriatim_error that says it in words, or NULL. On any error outputs, handles and caches are exactly
//     as they were.
//  3. NULL where something is needed is SERIATIM_INVALID_ARGUMENT and names the parameter. "or NULL" says where NULL
//     means that there is none. An array of no elements may be NULL.
//  4. A struct that starts with struct_size may grow at its end in later versions. X_init sets it and every default;
//     call that first. An older caller's smaller struct is accepted, and what it lacks has its default. A newer
//     caller's larger one is refused (UNSUPPORTED) unless the bytes this library does not know are zero; those of an
//     output are set to zero. A size that no version can have is INVALID_ARGUMENT. Structs without struct_size never
//     change.
//  5. Memory is the caller's: arrays come with their number of elements, tensors with strides in bytes. Pointers that a
//     function gives are borrowed from the handle they came from. Input is never written.
//  6. int32_t stands for enumerations and flags (0: false, 1: true; others are refused), int64_t for counts, positions,
//     bytes.
//  7. Nothing here throws, exits or prints. In return, callbacks must come back: no exception and no longjmp leaves
//     them.
//  8. Threads: different handles at once, always. One handle: reading calls (those that take it const) at once; a cache
//     also while another thread changes it; a transaction and an engine serve one call at a time. Destroy a handle
//     when no other call uses it.
//  9. The bits of results depend on the input alone: not on threads, executor, kernels, batch or chunking.
//
// Words: docs/design.md. A token's position is absolute; a query sees the visible run anchor .. its own position.
#ifndef SERIATIM_H_
#define SERIATIM_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SERIATIM_API __attribute__((visibility("default")))
#else
#define SERIATIM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Errors

typedef int32_t seriatim_status;
enum {
  SERIATIM_OK = 0,
  SERIATIM_INVALID_ARGUMENT = 1,  // shape, stride, dtype, count, option or pointer that does not fit
  SERIATIM_NOT_A_NUMBER = 2,      // a NaN score
  SERIATIM_NOT_FINITE = 3,        // a non-finite key, value, query, index key or weight
  SERIATIM_OVERFLOW = 4,          // finite input, but a logit passed f32 or an output its dtype; or a size past 64 bits
  SERIATIM_NOT_CONTIGUOUS = 5,    // a position that is not the successor of the frontier
  SERIATIM_NOT_CHRONOLOGICAL = 6,  // a row that is not canonical: order, tail or width
  SERIATIM_CAPACITY = 7,           // more tokens than the cache, engine or array was made for
  SERIATIM_OUT_OF_MEMORY = 8,
  SERIATIM_CORRUPT = 9,       // a file that is truncated, damaged or contradicts itself
  SERIATIM_UNSUPPORTED = 10,  // a version, dtype or feature that this build does not know
  SERIATIM_IO = 11,           // the system refused to read or write a file
  SERIATIM_NOT_FOUND = 12,    // a sequence or a name that is not there
  SERIATIM_INTERNAL = 13,     // a fault of the library itself: please report it
  SERIATIM_PEER_LOST = 14     // another process of a group ended, or did not answer in time
};

// Strings are cut to fit and end in 0. After success: code 0, place -1, empty strings.
typedef struct seriatim_error {
  size_t struct_size;
  seriatim_status code;
  int32_t reserved;
  int64_t ask;        // which ask of the call is at fault; -1: none
  int64_t row;        // query of that ask, batch row, layer or sequence; -1: none
  int64_t index;      // token, group, element, head or byte within it; -1: none
  char argument[72];  // the parameter, option or section at fault
  char message[264];  // one line for a person; starts with the argument
} seriatim_error;

// Where struct_size is too small for code, ask, row and index (0: it was not initialised), the call it was given to
// does nothing but give SERIATIM_INVALID_ARGUMENT.
SERIATIM_API void seriatim_error_init(seriatim_error* error);
// "InvalidArgument"; "Unknown" for a number that is no status. Never NULL.
SERIATIM_API const char* seriatim_status_name(seriatim_status status);

// ---- The library

SERIATIM_API const char* seriatim_version(void);  // "0.2.0"
// Implementations that this machine can run, fastest first, "reference" last; NULL at and past their number.
// Gives   a string that lives for ever.
SERIATIM_API const char* seriatim_kernels_name(int64_t index);
// What is used where NULL is passed for kernels: the one SERIATIM_KERNELS names in the environment, else the fastest.
// Errors  NOT_FOUND: the variable names what is not available; the fastest is used then.
SERIATIM_API seriatim_status seriatim_kernels_chosen(const char** name, seriatim_error* error);

// ---- Tensors: memory of the caller's, with strides

enum { SERIATIM_F32 = 0, SERIATIM_BF16 = 1, SERIATIM_F16 = 2, SERIATIM_I32 = 3, SERIATIM_I64 = 4 };

// Extents and strides past the rank are not read. Strides are multiples of the element size, not negative. Data is NULL
// only where there are no elements.
typedef struct seriatim_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;  // 0..4
  int64_t shape[4];
  int64_t stride_bytes[4];
} seriatim_tensor;

// A dense row-major tensor of shape [rank] at data.
// Errors  INVALID_ARGUMENT: dtype, rank, a negative extent. OVERFLOW: bytes past 64 bits.
SERIATIM_API seriatim_status seriatim_tensor_dense(void* data, int32_t dtype, int32_t rank, const int64_t* shape,
                                                   seriatim_tensor* tensor, seriatim_error* error);

// ---- Executor: what runs parallel work

typedef struct seriatim_executor seriatim_executor;
// One unit of work; worker is below the executor's concurrency, and no two units run at once with the same worker.
typedef void (*seriatim_task)(void* task_data, int64_t unit, int32_t worker);

typedef struct seriatim_executor_callbacks {
  size_t struct_size;
  void* user;
  // Calls task(task_data, unit, worker) once for every unit 0 .. units - 1, in any order on any threads, and returns
  // when all are done. May be called from several threads at once, and from inside a task.
  void (*run)(void* user, int64_t units, seriatim_task task, void* task_data);
  void (*dispose)(void* user);  // or NULL; called once, when nothing uses the executor any more
  int32_t concurrency;          // the most units that run at once: 1..1024
  int32_t reserved;             // 0
} seriatim_executor_callbacks;

SERIATIM_API void seriatim_executor_callbacks_init(seriatim_executor_callbacks* callbacks);
// The library's own threads; 0: as many as the process may use, at most 1024. Errors  INVALID_ARGUMENT. OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_executor_create(int32_t threads, seriatim_executor** executor,
                                                      seriatim_error* error);
// A pool of the caller's. If run leaves a unit out, runs one twice or passes a worker out of range, the call that used
// it ends with INVALID_ARGUMENT, names the executor and leaves its outputs unspecified. On error dispose is not called.
SERIATIM_API seriatim_status seriatim_executor_create_custom(const seriatim_executor_callbacks* callbacks,
                                                             seriatim_executor** executor, seriatim_error* error);
SERIATIM_API seriatim_status seriatim_executor_concurrency(const seriatim_executor* executor, int32_t* concurrency,
                                                           seriatim_error* error);
SERIATIM_API void seriatim_executor_destroy(seriatim_executor* executor);

// ---- Page allocator: where a cache's pages come from

typedef struct seriatim_allocator seriatim_allocator;

typedef struct seriatim_allocator_callbacks {
  size_t struct_size;
  void* user;
  // 64-byte aligned memory of a multiple of 64 bytes that nobody else uses, or NULL. May be called from any thread that
  // writes to the cache or drops its last snapshot; two calls at once are possible. An address that is not aligned is
  // released at once and counts as NULL.
  void* (*allocate)(void* user, int64_t bytes);
  void (*release)(void* user, void* memory, int64_t bytes);
  void (*dispose)(void* user);  // or NULL; called once, when nothing uses the allocator any more
} seriatim_allocator_callbacks;

SERIATIM_API void seriatim_allocator_callbacks_init(seriatim_allocator_callbacks* callbacks);
SERIATIM_API seriatim_status seriatim_allocator_create(const seriatim_allocator_callbacks* callbacks,
                                                       seriatim_allocator** allocator, seriatim_error* error);
// Pages from one region: huge pages, shared memory. It must outlive every cache and snapshot that uses it.
SERIATIM_API seriatim_status seriatim_allocator_create_region(void* region, int64_t region_bytes,
                                                              seriatim_allocator** allocator, seriatim_error* error);
SERIATIM_API void seriatim_allocator_destroy(seriatim_allocator* allocator);

// ---- Geometry: the integers of a layer

typedef struct seriatim_geometry seriatim_geometry;

// none: r = 1, index keys arrive finished; unit_max: they do for any r, and a group has the best score of its tokens
enum { SERIATIM_POOLING_MEAN = 0, SERIATIM_POOLING_NONE = 1, SERIATIM_POOLING_UNIT_MAX = 2 };

// Whether the newest, partial group is the raw tail of every row, or a group like any other.
enum { SERIATIM_TAIL_RAW = 0, SERIATIM_TAIL_GROUP = 1 };
enum {
  SERIATIM_SCALE_AFTER_SUM = 0,
  SERIATIM_SCALE_BEFORE_RELU = 1,
  SERIATIM_SCALE_AFTER_RELU = 2,
  SERIATIM_SCALE_NOWHERE = 3
};

typedef struct seriatim_geometry_options {  // the defaults are those of QSA
  size_t struct_size;
  int64_t group_tokens;      // r = 4
  int64_t budget_tokens;     // B = 2048, a multiple of r
  int64_t query_heads;       // 24, a multiple of kv_heads
  int64_t kv_heads;          // 2
  int64_t head_dim;          // 256
  int64_t value_dim;         // 0: head_dim
  int64_t index_heads;       // 4
  int64_t index_dim;         // 128
  int64_t index_rotary_dim;  // 64; even, at most index_dim; 0: no rotation
  double rope_theta;         // 1e7; 0 in what _get gives: inv_freq is what counts
  const float* inv_freq;     // [inv_freq_count] = index_rotary_dim / 2, or NULL with 0: from rope_theta
  int64_t inv_freq_count;
  const uint8_t* rope_axes;  // [rope_axes_count] = index_rotary_dim / 2, in 0..2, or NULL with 0: the position
  int64_t rope_axes_count;
  float softmax_scale;        // 0: 1/sqrt(head_dim)
  float norm_eps;             // 1e-6
  int32_t values_alias_keys;  // 1: values are the leading value_dim of the keys
  int32_t pooling;            // SERIATIM_POOLING_MEAN
  int32_t relu;               // 1
  int32_t scale_at;           // SERIATIM_SCALE_AFTER_SUM
  int32_t kv_dtype;           // SERIATIM_F32; storage of keys and values
  int32_t index_dtype;        // SERIATIM_F32; storage and rounding of index keys
  int32_t tail;               // SERIATIM_TAIL_RAW
  int32_t forced_outside;     // 0; 1: forced groups stand beside the budget
  int64_t forced_first;       // 0; the oldest so many groups are in every row, whatever their scores
  int64_t forced_newest;      // 0; the newest so many
  int64_t selections;         // 1; S, rows per query: a divisor of kv_heads and index_heads
} seriatim_geometry_options;

// What a row of `visible` tokens looks like.
typedef struct seriatim_row_shape {
  int64_t groups;         // complete ones; with tail `group` the partial one too
  int64_t tail_tokens;    // the raw tail
  int64_t row_width;      // entries of the canonical row
  int64_t row_capacity;   // storage for any row: B + r - 1 with a raw tail
  int64_t budget_groups;  // K = B / r
} seriatim_row_shape;

SERIATIM_API void seriatim_geometry_options_init(seriatim_geometry_options* options);
// Errors  INVALID_ARGUMENT, OVERFLOW: the option at fault.
SERIATIM_API seriatim_status seriatim_geometry_create(const seriatim_geometry_options* options,
                                                      seriatim_geometry** geometry, seriatim_error* error);
// Gives   every field, defaults filled in; inv_freq and rope_axes are borrowed. Takes  options initialised.
SERIATIM_API seriatim_status seriatim_geometry_get(const seriatim_geometry* geometry,
                                                   seriatim_geometry_options* options, seriatim_error* error);
// Errors  INVALID_ARGUMENT: visible negative or above 2^31.
SERIATIM_API seriatim_status seriatim_geometry_row_shape(const seriatim_geometry* geometry, int64_t visible,
                                                         seriatim_row_shape* shape, seriatim_error* error);
SERIATIM_API void seriatim_geometry_destroy(seriatim_geometry* geometry);

// ---- Cache: keys, values and index keys of many sequences in pages. docs/cache.md tells the life of a token.

typedef struct seriatim_cache seriatim_cache;
typedef struct seriatim_transaction seriatim_transaction;
typedef struct seriatim_snapshot seriatim_snapshot;

typedef struct seriatim_layer_options {
  const float* index_norm_weight;  // w of (1 + w): [index_norm_weight_count] = index_dim, or NULL with 0: zeros
  int64_t index_norm_weight_count;
  int32_t indexed;   // 0: the layer attends rows that another one planned and keeps keys and values alone
  int32_t reserved;  // 0
} seriatim_layer_options;

typedef struct seriatim_cache_options {
  size_t struct_size;
  const seriatim_layer_options* layers;  // [layer_count], or NULL: all are indexed, with zero weights
  int64_t layer_count;                   // 1; at most 2^20
  int64_t capacity_tokens;               // over all sequences, rounded up to whole pages
  int64_t capacity_bytes;                // instead of capacity_tokens
  int64_t page_tokens;                   // a multiple of 16 groups; 0: the smallest of at least 256 tokens
  seriatim_allocator* allocator;         // or NULL: the heap
  const char* kernels;                   // or NULL: as seriatim_kernels_chosen says
  int32_t reserve;                       // 1: take all pages' memory at once
  int32_t index_only;  // 1: an index store, for keys and values that the caller keeps (borrowed layers)
} seriatim_cache_options;

typedef struct seriatim_cache_bytes {  // a page that several hold counts once
  size_t struct_size;
  // Pages: exactly what the allocator gave.
  int64_t keys_values, raw_index_keys, pooled_keys, coordinates, free_pages;
  int64_t mapped;  // of files; in no sum
  int64_t tables;  // bookkeeping
} seriatim_cache_bytes;

SERIATIM_API void seriatim_cache_options_init(seriatim_cache_options* options);
SERIATIM_API void seriatim_cache_bytes_init(seriatim_cache_bytes* bytes);
// Errors  INVALID_ARGUMENT, NOT_FINITE: options. NOT_FOUND: kernels. OVERFLOW. OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_cache_create(const seriatim_geometry* geometry,
                                                   const seriatim_cache_options* options, seriatim_cache** cache,
                                                   seriatim_error* error);
SERIATIM_API void seriatim_cache_destroy(seriatim_cache* cache);
SERIATIM_API seriatim_status seriatim_cache_get_bytes(const seriatim_cache* cache, seriatim_cache_bytes* bytes,
                                                      seriatim_error* error);
// Gives free pages back to the allocator.
SERIATIM_API seriatim_status seriatim_cache_trim(seriatim_cache* cache, seriatim_error* error);

// Errors of all that follow  NOT_FOUND: sequence. INVALID_ARGUMENT: it is in the open transaction. OUT_OF_MEMORY.
// A new, empty sequence whose first token will have position anchor. Ids are never used again.
SERIATIM_API seriatim_status seriatim_cache_add(seriatim_cache* cache, int64_t anchor, int64_t* sequence,
                                                seriatim_error* error);
SERIATIM_API seriatim_status seriatim_cache_remove(seriatim_cache* cache, int64_t sequence, seriatim_error* error);
// Forgets every token and starts over at anchor.
SERIATIM_API seriatim_status seriatim_cache_reset(seriatim_cache* cache, int64_t sequence, int64_t anchor,
                                                  seriatim_error* error);
// Keeps the first `tokens` tokens.
SERIATIM_API seriatim_status seriatim_cache_truncate(seriatim_cache* cache, int64_t sequence, int64_t tokens,
                                                     seriatim_error* error);
// Forgets the first `tokens` tokens: the anchor moves, and groups count from there. CAPACITY.
SERIATIM_API seriatim_status seriatim_cache_evict_prefix(seriatim_cache* cache, int64_t sequence, int64_t tokens,
                                                         seriatim_error* error);
// A new sequence that holds what this one does; pages are shared until one of the two writes to them.
SERIATIM_API seriatim_status seriatim_cache_fork(seriatim_cache* cache, int64_t sequence, int64_t* forked,
                                                 seriatim_error* error);
// Appends what source holds at first_position .. first_position + tokens - 1 to destination. NOT_CONTIGUOUS. CAPACITY.
SERIATIM_API seriatim_status seriatim_cache_copy(seriatim_cache* cache, int64_t source, int64_t first_position,
                                                 int64_t tokens, int64_t destination, seriatim_error* error);

// Writes sequences to one file, whole or not at all (docs/cache_file.md).
// Takes   sequences [count], distinct; NULL with a count of -1: all there are
// Errors  NOT_FOUND. INVALID_ARGUMENT: one twice. IO.
SERIATIM_API seriatim_status seriatim_cache_save(const seriatim_cache* cache, const char* path,
                                                 const int64_t* sequences, int64_t count, seriatim_error* error);

// Read and checked; mapped read-only and not checked; mapped and checked.
enum { SERIATIM_RESTORE_COPY = 0, SERIATIM_RESTORE_MAP = 1, SERIATIM_RESTORE_MAP_VERIFIED = 2 };
typedef struct seriatim_restored {
  int64_t saved;  // the id in the cache that was saved
  int64_t id;     // the id here
} seriatim_restored;
// Adds every sequence of a file, or none.
// Gives   pairs[0 .. *count) in the file's order
// Errors  IO. CORRUPT: argument is the section. UNSUPPORTED. INVALID_ARGUMENT: another geometry, by name. NOT_FINITE.
//         CAPACITY: pages, or pairs_entries below the number of sequences (seriatim_cache_file_read tells it).
SERIATIM_API seriatim_status seriatim_cache_restore(seriatim_cache* cache, const char* path, int32_t mode,
                                                    seriatim_restored* pairs, int64_t pairs_entries, int64_t* count,
                                                    seriatim_error* error);

// ---- Snapshot: an immutable state of one sequence, for any number of readers

SERIATIM_API seriatim_status seriatim_cache_snapshot(const seriatim_cache* cache, int64_t sequence,
                                                     seriatim_snapshot** snapshot, seriatim_error* error);
SERIATIM_API seriatim_status seriatim_snapshot_copy(const seriatim_snapshot* snapshot, seriatim_snapshot** copy,
                                                    seriatim_error* error);
// Ask after reading and before using the result where a sequence was restored by mapping.
// Errors  IO: the mapped file was cut short; what was read past its end is zeros.
SERIATIM_API seriatim_status seriatim_snapshot_check(const seriatim_snapshot* snapshot, seriatim_error* error);
SERIATIM_API void seriatim_snapshot_destroy(seriatim_snapshot* snapshot);

// ---- Transaction: appends to any layers and sequences, published together or not at all. One is open at a time.

SERIATIM_API seriatim_status seriatim_cache_begin(seriatim_cache* cache, seriatim_transaction** transaction,
                                                  seriatim_error* error);
// Stages tokens of one layer. All layers of a sequence must reach the same frontier before the commit.
// Takes   keys [T, kv_heads, head_dim] and values [T, kv_heads, value_dim] in kv_dtype; values NULL exactly when they
//         alias the keys, both in an index store; index_keys [T, index_dim] in index_dtype, NULL exactly when the layer
//         is not indexed; coordinates [T][3], exactly when the geometry names rope_axes, else NULL
// Errors  NOT_FOUND. INVALID_ARGUMENT. NOT_CONTIGUOUS: first_position is not the staged frontier (row = sequence,
//         index = where it goes on). CAPACITY. OUT_OF_MEMORY. NOT_FINITE: row = token, index = element.
SERIATIM_API seriatim_status seriatim_transaction_append(seriatim_transaction* transaction, int64_t sequence,
                                                         int64_t layer, int64_t first_position,
                                                         const seriatim_tensor* keys, const seriatim_tensor* values,
                                                         const seriatim_tensor* index_keys, const int32_t* coordinates,
                                                         seriatim_error* error);
// Forgets all but the first `tokens` staged tokens of one sequence.
SERIATIM_API seriatim_status seriatim_transaction_keep(seriatim_transaction* transaction, int64_t sequence,
                                                       int64_t tokens, seriatim_error* error);
// Publishes everything and ends the transaction (destroy the handle then).
// Errors  INVALID_ARGUMENT: it has ended; layers at different frontiers (row = sequence, index = the layer that lacks
//         tokens).
SERIATIM_API seriatim_status seriatim_transaction_commit(seriatim_transaction* transaction, seriatim_error* error);
// Publishes the first `tokens` staged tokens of each sequence alone.
SERIATIM_API seriatim_status seriatim_transaction_commit_prefix(seriatim_transaction* transaction, int64_t tokens,
                                                                seriatim_error* error);
SERIATIM_API seriatim_status seriatim_transaction_rollback(seriatim_transaction* transaction, seriatim_error* error);
SERIATIM_API void seriatim_transaction_destroy(seriatim_transaction* transaction);  // rolls back what was not committed

// ---- A layer to read: of a snapshot, as a transaction has staged it, or of the caller's own memory

typedef struct seriatim_borrowed seriatim_borrowed;

typedef struct seriatim_layer {             // exactly one of the three handles
  const seriatim_snapshot* snapshot;        // or NULL
  const seriatim_transaction* transaction;  // or NULL
  const seriatim_borrowed* borrowed;        // or NULL
  int64_t sequence;                         // of a transaction; else not read
  int64_t layer;                            // of a snapshot or a transaction; else not read
} seriatim_layer;

typedef struct seriatim_token {
  const void* key;            // [head_dim] of the kv head, in kv_dtype; NULL where the layer keeps no keys
  const void* value;          // [value_dim]; NULL where it keeps no keys
  const void* raw_index_key;  // [index_dim]; NULL where none is kept
  int32_t coordinates[3];     // the position three times where there are none
  int32_t reserved;
} seriatim_token;

// Gives   the run that the layer holds: positions *anchor .. *anchor + *tokens - 1
SERIATIM_API seriatim_status seriatim_layer_run(const seriatim_layer* layer, int64_t* anchor, int64_t* tokens,
                                                seriatim_error* error);
// Gives   borrowed addresses, valid while the snapshot lives, or until the transaction's next append to the sequence
//         or its end
SERIATIM_API seriatim_status seriatim_layer_token(const seriatim_layer* layer, int64_t position, int64_t kv_head,
                                                  seriatim_token* token, seriatim_error* error);

// ---- Borrowed layer: keys and values that the caller keeps, in arrays or pages of its own. Nothing is copied.

// Every axis but the last may have any stride: an array [heads, T, dim] is handed over as its view [T, heads, dim]. The
// elements of the last axis are neighbours. Slot s is where token s of the array lies, or token s mod page_tokens of
// page s / page_tokens; page_tokens is any number.
typedef struct seriatim_borrowed_tensors {
  size_t struct_size;
  // In kv_dtype. One array: keys [T, kv_heads, head_dim], values [T, kv_heads, value_dim]. With block_table the pool of
  // pages: [pages, page_tokens, kv_heads, dim]. With key_pages how a page is laid out: [page_tokens, kv_heads, dim];
  // data is not read then. Values NULL exactly where they alias the keys; both NULL: a layer that plans alone.
  const seriatim_tensor* keys;
  const seriatim_tensor* values;
  // Or NULL. [n] i32 or i64: which page of the pool holds slots i * page_tokens and on. Entries of which no slot holds
  // a token of the run are not read.
  const seriatim_tensor* block_table;
  // The same as addresses, [count] each, or NULL with 0. NULL where no token of the run lies.
  const void* const* key_pages;
  const void* const* value_pages;
  int64_t key_page_count;
  int64_t value_page_count;
  int64_t first_slot;  // of the run's first token: past left padding, or past a prefix that is gone
  // The index: panels that the caller keeps, or another layer's of the same run, as an index store's; with neither the
  // layer attends rows that another one planned.
  const seriatim_tensor* panels;  // [panels, index_dim, 16] in index_dtype, dense, or NULL
  int64_t first_group;            // of the run: lane first_group % 16 of panel first_group / 16
  const seriatim_layer* index;    // or NULL
  float panels_max_abs;           // no element is larger in magnitude; infinity: not known, which is a little slower
  int32_t reserved;               // 0
} seriatim_borrowed_tensors;

SERIATIM_API void seriatim_borrowed_tensors_init(seriatim_borrowed_tensors* tensors);
// One per sequence and layer, bound to nothing yet. Errors  OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_borrowed_create(const seriatim_geometry* geometry, seriatim_borrowed** borrowed,
                                                      seriatim_error* error);
// Looks at `tokens` tokens from position anchor. Call it whenever tokens have come or pages have moved; it must not run
// beside a call that reads the layer.
// Takes   tensors whose memory stays where it is while the layer is read; an index of a snapshot is kept, one of a
//         transaction or a borrowed layer must last as long as this binding
// Errors  INVALID_ARGUMENT, by field: a dtype, rank or extent; a stride that lets two tokens, heads or pages share
//         memory (index = axis); fewer tokens, pages, entries or panels than the run needs; an entry that is no page of
//         the pool, or that an earlier one names too (index = entry); a NULL page (index = page); an index of another
//         run. OVERFLOW. OUT_OF_MEMORY. The layer stays as it was.
SERIATIM_API seriatim_status seriatim_borrowed_bind(seriatim_borrowed* borrowed, int64_t anchor, int64_t tokens,
                                                    const seriatim_borrowed_tensors* tensors, seriatim_error* error);
SERIATIM_API void seriatim_borrowed_destroy(seriatim_borrowed* borrowed);
// Bytes of the panels that hold `groups` finished index keys. Errors  INVALID_ARGUMENT: groups. OVERFLOW.
SERIATIM_API seriatim_status seriatim_panels_bytes(const seriatim_geometry* geometry, int64_t groups, int64_t* bytes,
                                                   seriatim_error* error);
// Finished index keys into panels of the caller's; lanes past the last group are zeros.
// Takes   pooled [G, index_dim] in index_dtype; panels of seriatim_panels_bytes of them or more, 64-byte aligned
// Errors  INVALID_ARGUMENT. Nothing is written.
SERIATIM_API seriatim_status seriatim_pack_panels(const seriatim_geometry* geometry, const seriatim_tensor* pooled,
                                                  void* panels, int64_t panels_bytes, seriatim_error* error);

// ---- Pooler: raw index keys of many sequences into panels that the caller keeps, as their groups close

typedef struct seriatim_pooler seriatim_pooler;

// An array's elements lie as far apart as the first one's struct_size says, and all have that size.
typedef struct seriatim_pool_ask {
  size_t struct_size;
  seriatim_tensor raw;                 // [slots, index_dim] in index_dtype, dense; finished where nothing is pooled
  const seriatim_tensor* coordinates;  // [3, slots] i64, M-RoPE; NULL: positions serve
  int64_t anchor, tokens;              // the run that there is
  int64_t first_slot;                  // of its first token in raw and coordinates
  int64_t first_group;                 // groups before it are in the panels already
  seriatim_tensor panels;  // [panels, index_dim, 16] in index_dtype, dense; group g is lane g % 16 of g / 16
} seriatim_pool_ask;

SERIATIM_API void seriatim_pool_ask_init(seriatim_pool_ask* ask);
// Takes   norm_weight [norm_weight_count] = [index_dim], or NULL with 0: zeros; executor, or NULL: the
//         calling thread
// Errors  INVALID_ARGUMENT. NOT_FINITE: index = dim. OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_pooler_create(const seriatim_geometry* geometry, const float* norm_weight,
                                                    int64_t norm_weight_count, seriatim_executor* executor,
                                                    seriatim_pooler** pooler, seriatim_error* error);
// Pools the groups first_group and on of every ask. One call of a pooler at a time.
// Gives   max_abs, or NULL: the largest magnitude of what was written, for panels_max_abs
// Errors  ask says whose. INVALID_ARGUMENT: panels that have no place for the last group, coordinates that are no
//         positions. NOT_FINITE: a raw key or its group's mean; index = the first of up to 16 groups among which it is;
//         lanes of groups that were asked for may then have been written. OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_pooler_pool(seriatim_pooler* pooler, const seriatim_pool_ask* asks,
                                                  int64_t ask_count, float* max_abs, seriatim_error* error);
SERIATIM_API void seriatim_pooler_destroy(seriatim_pooler* pooler);

// ---- Devices: accelerators, which give the same bits

typedef struct seriatim_device_info {
  size_t struct_size;
  char name[32];      // as an engine's options take it: "opencl:0", "cuda:0"
  char product[128];  // what the driver calls it; cut to fit, as the strings that follow
  char driver[128];
  char lacks[128];  // what it does not promise of its arithmetic, by name; empty: it keeps the library's bits
  int64_t memory_bytes;
  int64_t largest_buffer_bytes;
} seriatim_device_info;

SERIATIM_API void seriatim_device_info_init(seriatim_device_info* info);
// Errors  UNSUPPORTED: a build without devices, or a machine without any driver's loader. IO. None at all is no error.
SERIATIM_API seriatim_status seriatim_device_count(int64_t* count, seriatim_error* error);
// Errors  NOT_FOUND: index is not below the count. As seriatim_device_count.
SERIATIM_API seriatim_status seriatim_device_get(int64_t index, seriatim_device_info* info, seriatim_error* error);

// ---- Engine: where the work is done, made once, with all its scratch

typedef struct seriatim_engine seriatim_engine;

typedef struct seriatim_engine_options {
  size_t struct_size;
  seriatim_executor* executor;  // what runs the work, or NULL: `threads` of the library's own
  const char* kernels;          // or NULL: as seriatim_kernels_chosen says
  const char* device;           // instead of the host: a device's name, "opencl" or "cuda" (the first that keeps the
                                // bits), or NULL. Without executor, kernels and threads.
  int32_t threads;              // 1: the calling thread; 0: as many as the process may use, at most 1024
  int32_t work_group;           // of a device: lanes of a work-group, 1 .. 1024; 0: what suits it
  const char* screening;        // on the host: "auto", "off" or "on"; NULL: what the environment variable
                                // SERIATIM_SCREEN says, else "auto". Changes speed alone.
} seriatim_engine_options;

typedef struct seriatim_step_limits {  // the most that one call may bring
  size_t struct_size;
  int64_t visible_tokens;  // of any query
  int64_t queries;         // of all asks together
  int64_t asks;
} seriatim_step_limits;

typedef struct seriatim_work {  // the sum over all plans that succeeded
  size_t struct_size;
  int64_t queries;
  int64_t dense_rows;  // rows that hold every visible token
  int64_t groups_scored, groups_selected, row_tokens;
  // On the host: groups of screened queries, those of them that were scored canonically, queries that had to be scored
  // in full after all, bytes of pooled keys read to score.
  int64_t groups_screened, groups_rescored, screen_fallbacks, index_bytes_read;
} seriatim_work;

SERIATIM_API void seriatim_engine_options_init(seriatim_engine_options* options);
SERIATIM_API void seriatim_step_limits_init(seriatim_step_limits* limits);  // all 0
SERIATIM_API void seriatim_work_init(seriatim_work* work);
// Takes   options, or NULL: the defaults
// Errors  INVALID_ARGUMENT: options that exclude each other. NOT_FOUND: kernels, device. UNSUPPORTED: a build without
//         devices, no driver, a device that does not keep the bits. OUT_OF_MEMORY. IO.
SERIATIM_API seriatim_status seriatim_engine_create(const seriatim_engine_options* options, seriatim_engine** engine,
                                                    seriatim_error* error);
// Where the pages of a cache must come from whose layers a device's engine is asked about: its options' allocator.
// Takes   the cache's options, whose capacity says how much device memory is taken, at once
// Gives   an allocator, or NULL where any memory serves, as on the host
// Errors  INVALID_ARGUMENT: a device and no capacity. OVERFLOW. OUT_OF_MEMORY, IO: what the driver refused.
SERIATIM_API seriatim_status seriatim_engine_allocator(seriatim_engine* engine, const seriatim_geometry* geometry,
                                                       const seriatim_cache_options* options,
                                                       seriatim_allocator** allocator, seriatim_error* error);
// Scratch depends on the geometry, the longest visible run, the asks, the executor's concurrency and, on a device, the
// number of queries; never on queries x tokens. An engine that was never reserved takes what a call lacks. After
// _reserve no call takes memory: one that would need more is refused (CAPACITY). Further calls of _reserve add to what
// is reserved. Errors  INVALID_ARGUMENT: a limit. OVERFLOW. OUT_OF_MEMORY: what was reserved stays.
SERIATIM_API seriatim_status seriatim_engine_reserve(seriatim_engine* engine, const seriatim_geometry* geometry,
                                                     const seriatim_step_limits* limits, seriatim_error* error);
// What _reserve would take of a fresh engine, known beforehand. Errors  INVALID_ARGUMENT. OVERFLOW.
SERIATIM_API seriatim_status seriatim_engine_bytes_for(const seriatim_engine* engine, const seriatim_geometry* geometry,
                                                       const seriatim_step_limits* limits, int64_t* bytes,
                                                       seriatim_error* error);
SERIATIM_API seriatim_status seriatim_engine_bytes(const seriatim_engine* engine, int64_t* bytes,
                                                   seriatim_error* error);  // held now
SERIATIM_API seriatim_status seriatim_engine_work(const seriatim_engine* engine, seriatim_work* work,
                                                  seriatim_error* error);
SERIATIM_API seriatim_status seriatim_engine_clear_work(seriatim_engine* engine, seriatim_error* error);
// Gives up what a device holds of states that sequences had when they were last asked about. Nothing on the host.
SERIATIM_API seriatim_status seriatim_engine_let_go(seriatim_engine* engine, seriatim_error* error);
SERIATIM_API void seriatim_engine_destroy(seriatim_engine* engine);

// ---- Plan and attend: any number of sequences in one call

enum { SERIATIM_NAN_REFUSE = 0, SERIATIM_NAN_EXCLUDE = 1 };  // a NaN score is an error; or that group is never chosen

// An ask is one layer of one sequence and Q queries over it: a token to decode, a chunk of a prompt, speculative
// tokens. Asks of all kinds and lengths may share a call, and several may name one layer; all have equal geometries. An
// array's elements lie as far apart as the first one's struct_size says, and all have that size.
typedef struct seriatim_plan_ask {
  size_t struct_size;
  seriatim_layer layer;                       // indexed
  seriatim_tensor index_queries;              // [Q, index_heads, index_dim] in index_dtype, finished
  const seriatim_tensor* index_head_weights;  // [Q, index_heads] f32, or NULL
  const int64_t* positions;                   // [query_count] = [Q], in any order, each held by the layer
  int64_t query_count;
} seriatim_plan_ask;

typedef struct seriatim_attend_ask {
  size_t struct_size;
  seriatim_layer layer;
  seriatim_tensor queries;   // [Q, query_heads, head_dim] in kv_dtype
  const int64_t* positions;  // [query_count] = [Q]
  int64_t query_count;
  const float* sinks;  // [sink_count] = [query_heads], or NULL with 0: one more logit per head, reduced first
  int64_t sink_count;
} seriatim_attend_ask;

// Rows of the queries of all asks, one after the other, in the caller's memory; and the same to be read. With S
// selections a query has S of them, one after the other: where [queries] stands there are [queries][S].
typedef struct seriatim_rows {
  int32_t* positions;  // [queries][stride]: ascending, -1 past each count
  int64_t stride;      // entries from one row to the next; at least row_capacity
  int32_t* counts;     // [queries]
} seriatim_rows;

typedef struct seriatim_const_rows {
  const int32_t* positions;  // [queries][stride]; what lies past each count does not matter
  int64_t stride;
  const int32_t* counts;  // [queries], each 0 .. stride
} seriatim_const_rows;

SERIATIM_API void seriatim_plan_ask_init(seriatim_plan_ask* ask);
SERIATIM_API void seriatim_attend_ask_init(seriatim_attend_ask* ask);
// Scores, selects and expands: one row per query and selection. A row depends on its layer and its query alone.
// Gives   rows of all asks
// Errors  ask, row (= query of that ask) and index say where, ask -1: the call as a whole. INVALID_ARGUMENT. CAPACITY:
//         more than was reserved. OUT_OF_MEMORY. NOT_A_NUMBER: index = group.
SERIATIM_API seriatim_status seriatim_plan(seriatim_engine* engine, const seriatim_plan_ask* asks, int64_t ask_count,
                                           int32_t nan_policy, const seriatim_rows* rows, seriatim_error* error);
// Attends over rows that seriatim_plan or anyone else made; several layers may use the same rows.
// Gives   output [queries of all asks, query_heads, value_dim] f32, bf16 or f16; lse [queries of all asks, query_heads]
//         f32, or NULL
// Errors  as seriatim_plan. NOT_CHRONOLOGICAL, NOT_FINITE. OVERFLOW: index = the first head; the output and lse of
//         every such head are NaN then, and all others are right.
SERIATIM_API seriatim_status seriatim_attend(seriatim_engine* engine, const seriatim_attend_ask* asks,
                                             int64_t ask_count, const seriatim_const_rows* rows,
                                             const seriatim_tensor* output, const seriatim_tensor* lse,
                                             seriatim_error* error);
// Norm and rotation of index queries that arrive raw.
// Takes   index_queries [Q, index_heads, index_dim] in index_dtype; index_norm_weight [index_dim] f32; positions
//         [query_count] = [Q]; coordinates [Q][3], M-RoPE, or NULL for text
// Gives   prepared, as index_queries
// Errors  INVALID_ARGUMENT. NOT_FINITE: row = query (index = element). OUT_OF_MEMORY.
SERIATIM_API seriatim_status seriatim_prepare_index_queries(const seriatim_geometry* geometry,
                                                            const seriatim_tensor* index_norm_weight,
                                                            const seriatim_tensor* index_queries,
                                                            const int64_t* positions, int64_t query_count,
                                                            const int32_t* coordinates, const seriatim_tensor* prepared,
                                                            seriatim_error* error);

// ---- Attend in halves: for those who share the splits of a row out, among processes or kernels of their own

// A split is 128 entries of a row, counted from its start. What it gives a query, f32, one after the other: m
// [query_heads], the largest logit; den [query_heads], the sum of exp(logit - m); o [query_heads][value_dim], the
// values weighted by exp(logit - m). Past a row's end m is -inf, the others 0. Any ranges of splits, computed anywhere
// and laid side by side, fold to the bits of seriatim_attend.
// Gives   the floats of one query and one split: P
SERIATIM_API seriatim_status seriatim_partial_floats(const seriatim_geometry* geometry, int64_t* floats,
                                                     seriatim_error* error);
// Gives   partials [Q][splits][P] = [partials_floats], of splits first_split and on
// Errors  as seriatim_attend. INVALID_ARGUMENT: a negative split, partials of another size. UNSUPPORTED: a device.
SERIATIM_API seriatim_status seriatim_attend_partials(seriatim_engine* engine, const seriatim_attend_ask* ask,
                                                      const seriatim_const_rows* rows, int64_t first_split,
                                                      int64_t splits, float* partials, int64_t partials_floats,
                                                      seriatim_error* error);
// Folds all splits of Q queries in order, after the sinks.
// Takes   partials [Q][splits][P] = [partials_floats]; sinks [sink_count] = [query_heads], or NULL with 0
// Gives   output [Q, query_heads, value_dim] and lse [Q, query_heads] as seriatim_attend. Errors  as above.
SERIATIM_API seriatim_status seriatim_fold_partials(seriatim_engine* engine, const seriatim_geometry* geometry,
                                                    const float* partials, int64_t partials_floats, int64_t splits,
                                                    const float* sinks, int64_t sink_count,
                                                    const seriatim_tensor* output, const seriatim_tensor* lse,
                                                    seriatim_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // SERIATIM_H_
