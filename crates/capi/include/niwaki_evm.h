/*
 * The Niwaki EVM for C: link with -lniwaki_capi.
 *
 * Words are 32 bytes, big-endian. Functions that can fail return a niwaki_status; niwaki_last_error() gives the error
 * of the calling thread. Pointers passed to a callback are valid until it returns; pointers that a function returns are
 * valid until the next call with the same machine. One thread at a time may use a machine; tables may be shared.
 */
#ifndef NIWAKI_EVM_H
#define NIWAKI_EVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented by every incompatible change. */
#define NIWAKI_ABI_VERSION 1
uint32_t niwaki_abi_version(void);

typedef struct {
  uint8_t bytes[20];
} niwaki_address;

typedef struct {
  uint8_t bytes[32];
} niwaki_word;

typedef struct {
  const uint8_t *data;
  size_t length;
} niwaki_bytes;

typedef enum {
  NIWAKI_OK = 0,
  NIWAKI_ARGUMENT = 1, /* an argument is invalid */
  NIWAKI_FAULT = 2,    /* a callback of the state has failed: the machine can only be freed */
  NIWAKI_PANIC = 3     /* a defect of this library: likewise */
} niwaki_status;

/* The error of the last function that failed on this thread; never null. */
const char *niwaki_last_error(void);

/* ---- The pre-state of the block, by callbacks: 0 is success, anything else is failure ---- */

typedef struct {
  bool exists;
  uint64_t nonce;
  niwaki_word balance; /* wei */
  niwaki_word code_hash;
} niwaki_account;

typedef struct {
  void *context;
  int (*account)(void *context, const niwaki_address *address, niwaki_account *account);
  int (*storage)(void *context, const niwaki_address *address, const niwaki_word *key, niwaki_word *value);
  /* Whether any slot is non-zero (EIP-7610). */
  int (*has_storage)(void *context, const niwaki_address *address, bool *has);
  /* The code is copied before the next callback. */
  int (*code)(void *context, const niwaki_word *code_hash, niwaki_bytes *code);
  int (*block_hash)(void *context, uint64_t number, niwaki_word *hash);
} niwaki_state;

/* ---- Tables: opcodes, prices and contracts of a fork, with changes ---- */

typedef struct niwaki_table niwaki_table;
typedef struct niwaki_frame niwaki_frame;

/* The table of a fork by its name, such as "Osaka"; null if there is none. */
niwaki_table *niwaki_table_new(const char *fork);
/* Machines created with it stay valid. */
void niwaki_table_free(niwaki_table *table);

niwaki_status niwaki_table_set_static_gas(niwaki_table *table, uint8_t opcode, uint32_t gas);

typedef enum {
  NIWAKI_NEXT = 0,    /* continues with the next opcode */
  NIWAKI_STOP = 1,    /* ends as by STOP */
  NIWAKI_FAIL = 2,    /* fails and loses its gas */
  NIWAKI_OUT_OF_GAS = 3
} niwaki_flow;

/* A host opcode. If a niwaki_frame function returns false, the opcode fails. Bodies of opcodes and contracts, and what
 * their contexts point at, must outlive the table and every machine created with it, and are called by all threads that
 * run such machines. */
typedef niwaki_flow (*niwaki_opcode)(void *context, niwaki_frame *frame);
niwaki_status niwaki_table_set_opcode(niwaki_table *table, uint8_t opcode, size_t input, size_t output,
                                      uint32_t gas, niwaki_opcode body, void *context);

/* Functions of the frame that runs a host opcode; false if the frame has failed. */
bool niwaki_frame_pop(niwaki_frame *frame, niwaki_word *word);
bool niwaki_frame_push(niwaki_frame *frame, const niwaki_word *word);
bool niwaki_frame_charge(niwaki_frame *frame, uint64_t gas);
/* A range of memory, which is expanded and charged for. */
bool niwaki_frame_memory(niwaki_frame *frame, const niwaki_word *offset, const niwaki_word *length, uint8_t **data);
bool niwaki_frame_load(niwaki_frame *frame, const niwaki_word *key, niwaki_word *value);
bool niwaki_frame_store(niwaki_frame *frame, const niwaki_word *key, const niwaki_word *value);
uint64_t niwaki_frame_gas_left(const niwaki_frame *frame);
niwaki_address niwaki_frame_address(const niwaki_frame *frame);
niwaki_address niwaki_frame_caller(const niwaki_frame *frame);

/* A host contract. gas_used and output are zero before the call; the output is copied after it. */
typedef niwaki_flow (*niwaki_contract)(void *context, niwaki_bytes input, uint64_t gas, uint64_t *gas_used,
                                       niwaki_bytes *output);
niwaki_status niwaki_table_set_contract(niwaki_table *table, const niwaki_address *address, niwaki_contract body,
                                        void *context);

/* ---- Machines: one per block ---- */

typedef struct niwaki_evm niwaki_evm;

typedef struct {
  uint64_t number;
  uint64_t timestamp; /* seconds */
  niwaki_address coinbase;
  uint64_t gas_limit;
  uint64_t base_fee;        /* wei per gas */
  niwaki_word prev_randao;  /* difficulty before Paris */
  niwaki_word blob_base_fee; /* wei */
  uint64_t chain_id;
  uint64_t slot_number;
} niwaki_block;

typedef struct {
  niwaki_address address;
  const niwaki_word *keys;
  size_t key_count;
} niwaki_access;

/* Zero fields are absent. */
typedef struct {
  niwaki_address origin;
  niwaki_word gas_price; /* wei */
  niwaki_address caller;
  niwaki_address target;  /* the account to call, or the address to create */
  bool creates;           /* whether input is init code */
  niwaki_word value;      /* wei */
  niwaki_bytes input;
  uint64_t gas;
  uint64_t reservoir;               /* state gas reservoir (EIP-8037); 0 before Amsterdam */
  const niwaki_word *blob_hashes;   /* versioned (EIP-4844) */
  size_t blob_hash_count;
  const niwaki_access *access_list; /* warm from the start (EIP-2930) */
  size_t access_count;
} niwaki_message;

typedef enum {
  NIWAKI_SUCCESS = 0,
  NIWAKI_REVERT = 1,
  NIWAKI_HALT = 2
} niwaki_end;

typedef struct {
  niwaki_end end;
  uint64_t gas_left; /* before any refund */
  int64_t refund;
  uint64_t reservoir_left; /* state gas left of the reservoir */
  uint64_t state_gas;      /* state gas used */
  niwaki_bytes output;
  size_t logs;
} niwaki_outcome;

/* The callbacks of the state and their context must outlive the machine. Null if an argument is invalid. */
niwaki_evm *niwaki_evm_new(const niwaki_table *table, const niwaki_block *block, const niwaki_state *state);
void niwaki_evm_free(niwaki_evm *evm);

/* Runs a message as one transaction, without nonces and fees, which are the caller's. */
niwaki_status niwaki_evm_run(niwaki_evm *evm, const niwaki_message *message, niwaki_outcome *outcome);

typedef struct {
  niwaki_address address;
  const niwaki_word *topics;
  size_t topic_count;
  niwaki_bytes data;
} niwaki_log;

/* A log of the last run. */
niwaki_status niwaki_evm_log(niwaki_evm *evm, size_t index, niwaki_log *log);

/* The changes of all runs so far, ascending by address and key. Either function may be null. */
typedef struct {
  void *context;
  /* storage_wiped: the old storage is gone; code is empty unless it is new. */
  void (*account)(void *context, const niwaki_address *address, const niwaki_account *account, bool storage_wiped,
                  niwaki_bytes code);
  void (*storage)(void *context, const niwaki_address *address, const niwaki_word *key, const niwaki_word *value);
} niwaki_changes;

niwaki_status niwaki_evm_changes(niwaki_evm *evm, const niwaki_changes *changes);

#ifdef __cplusplus
}
#endif

#endif
