/* Runs a token, a host opcode and a host contract, and every kind of failure. */
#include "niwaki_evm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, niwaki_last_error()); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

/* PUSH1 3 CUBE(0x0c) PUSH0 SSTORE; CALL of the contract 0x..aa with the word 1 as input; LOG1 of its output with
   topic 7; RETURN of it. */
static const uint8_t CODE[] = {0x60, 0x03, 0x0c, 0x5f, 0x55, 0x60, 0x01, 0x5f, 0x52, 0x60, 0x20, 0x5f, 0x60, 0x20,
                               0x5f, 0x5f, 0x60, 0xaa, 0x61, 0xff, 0xff, 0xf1, 0x50, 0x60, 0x07, 0x60, 0x20, 0x5f,
                               0xa1, 0x60, 0x20, 0x5f, 0xf3};

typedef struct {
  int reads;
  bool fails;
} state;

static const niwaki_address CONTRACT = {{0xc0}};

static int read_account(void *context, const niwaki_address *address, niwaki_account *account) {
  state *s = context;
  s->reads += 1;
  if (memcmp(address, &CONTRACT, sizeof CONTRACT) == 0) {
    account->exists = true;
    account->nonce = 1;
    account->code_hash.bytes[0] = 1;
  }
  return s->fails ? 5 : 0;
}

static int read_storage(void *context, const niwaki_address *address, const niwaki_word *key, niwaki_word *value) {
  (void)context, (void)address, (void)key;
  value->bytes[31] = 9;
  return 0;
}

static int has_storage(void *context, const niwaki_address *address, bool *has) {
  (void)context, (void)address;
  *has = false;
  return 0;
}

static int read_code(void *context, const niwaki_word *hash, niwaki_bytes *code) {
  (void)context;
  code->data = CODE;
  code->length = hash->bytes[0] == 1 ? sizeof CODE : 0;
  return 0;
}

static int block_hash(void *context, uint64_t number, niwaki_word *hash) {
  (void)context, (void)number, (void)hash;
  return 1;
}

static niwaki_flow cube(void *context, niwaki_frame *frame) {
  niwaki_word word;
  if (!niwaki_frame_pop(frame, &word)) return NIWAKI_FAIL;
  *(int *)context += 1;
  uint8_t n = word.bytes[31];
  memset(&word, 0, sizeof word);
  word.bytes[31] = (uint8_t)(n * n * n);
  uint64_t before = niwaki_frame_gas_left(frame);
  if (!niwaki_frame_charge(frame, 11)) return NIWAKI_FAIL;
  CHECK(niwaki_frame_gas_left(frame) == before - 11);
  CHECK(niwaki_frame_address(frame).bytes[0] == 0xc0);
  CHECK(niwaki_frame_caller(frame).bytes[0] == 0xee);
  niwaki_word key = {{0}}, value;
  key.bytes[31] = 1;
  CHECK(niwaki_frame_load(frame, &key, &value) && value.bytes[31] == (*(int *)context == 1 ? 9 : 27));
  CHECK(niwaki_frame_store(frame, &key, &word));
  niwaki_word offset = {{0}}, length = {{0}};
  length.bytes[31] = 32;
  uint8_t *memory;
  CHECK(niwaki_frame_memory(frame, &offset, &length, &memory) && memory[31] == 0);
  return niwaki_frame_push(frame, &word) ? NIWAKI_NEXT : NIWAKI_FAIL;
}

static niwaki_flow doubled(void *context, niwaki_bytes input, uint64_t gas, uint64_t *gas_used, niwaki_bytes *output) {
  static uint8_t result[32];
  (void)context;
  if (gas < 50) return NIWAKI_OUT_OF_GAS;
  CHECK(input.length == 32);
  memcpy(result, input.data, 32);
  result[31] *= 2;
  *gas_used = 50;
  output->data = result;
  output->length = sizeof result;
  return NIWAKI_NEXT;
}

static niwaki_flow underflows(void *context, niwaki_frame *frame) {
  niwaki_word word;
  (void)context;
  while (niwaki_frame_pop(frame, &word)) {
  }
  return NIWAKI_NEXT;
}

typedef struct {
  int accounts, slots;
  uint8_t last;
} counts;

static void count_account(void *context, const niwaki_address *address, const niwaki_account *account, bool wiped,
                          niwaki_bytes code) {
  (void)address;
  CHECK(account->exists && !wiped && code.length == 0);
  ((counts *)context)->accounts += 1;
}

static void count_slot(void *context, const niwaki_address *address, const niwaki_word *key,
                       const niwaki_word *value) {
  (void)address, (void)key;
  ((counts *)context)->slots += 1;
  ((counts *)context)->last = value->bytes[31];
}

int main(void) {
  CHECK(niwaki_abi_version() == NIWAKI_ABI_VERSION);
  CHECK(niwaki_table_new("Atlantis") == NULL && strstr(niwaki_last_error(), "Atlantis"));
  CHECK(niwaki_table_new(NULL) == NULL);

  niwaki_table *table = niwaki_table_new("Osaka");
  CHECK(table != NULL);
  int cubes = 0;
  niwaki_address own = {{0}};
  own.bytes[19] = 0xaa;
  CHECK(niwaki_table_set_opcode(table, 0x0c, 1, 1, 5, cube, &cubes) == NIWAKI_OK);
  CHECK(niwaki_table_set_opcode(table, 0x0d, 1, 1, 5, NULL, NULL) == NIWAKI_ARGUMENT);
  CHECK(niwaki_table_set_opcode(table, 0x0d, 1, 2000, 5, cube, NULL) == NIWAKI_ARGUMENT);
  CHECK(niwaki_table_set_contract(table, &own, doubled, NULL) == NIWAKI_OK);
  CHECK(niwaki_table_set_static_gas(table, 0x5f, 7) == NIWAKI_OK);
  CHECK(niwaki_table_set_static_gas(NULL, 0x5f, 7) == NIWAKI_ARGUMENT);

  state here = {0};
  niwaki_block block = {.number = 1, .gas_limit = 30000000, .chain_id = 1};
  niwaki_state reader = {&here, read_account, read_storage, has_storage, read_code, NULL};
  CHECK(niwaki_evm_new(table, &block, &reader) == NULL && strstr(niwaki_last_error(), "block_hash"));
  reader.block_hash = block_hash;
  niwaki_evm *evm = niwaki_evm_new(table, &block, &reader);
  CHECK(evm != NULL);
  niwaki_table *again = niwaki_table_new("Osaka");
  CHECK(niwaki_table_set_opcode(again, 0x0c, 1, 1, 5, cube, &cubes) == NIWAKI_OK);
  CHECK(niwaki_table_set_contract(again, &own, doubled, NULL) == NIWAKI_OK);
  CHECK(niwaki_table_set_static_gas(again, 0x5f, 7) == NIWAKI_OK);
  /* A machine keeps the table that it was created with. */
  CHECK(niwaki_table_set_opcode(table, 0x0c, 0, 0, 5, underflows, NULL) == NIWAKI_OK);
  niwaki_evm *other = niwaki_evm_new(table, &block, &reader);
  niwaki_table_free(table);

  niwaki_message message = {.target = CONTRACT, .gas = 200000};
  message.caller.bytes[0] = 0xee;
  niwaki_word slot = {{0}};
  niwaki_access access = {CONTRACT, &slot, 1};
  niwaki_outcome outcome;
  CHECK(niwaki_evm_run(evm, &message, &outcome) == NIWAKI_OK);
  CHECK(outcome.end == NIWAKI_SUCCESS && outcome.output.length == 32 && outcome.output.data[31] == 2);
  CHECK(cubes == 1 && here.reads > 0 && outcome.gas_left > 100000 && outcome.logs == 1);
  niwaki_log log;
  CHECK(niwaki_evm_log(evm, 0, &log) == NIWAKI_OK && log.topic_count == 1 && log.topics[0].bytes[31] == 7);
  CHECK(log.address.bytes[0] == 0xc0 && log.data.length == 32 && log.data.data[31] == 2);
  CHECK(niwaki_evm_log(evm, 1, &log) == NIWAKI_ARGUMENT);
  counts changed = {0};
  niwaki_changes changes = {&changed, count_account, count_slot};
  CHECK(niwaki_evm_changes(evm, &changes) == NIWAKI_OK);
  CHECK(changed.accounts == 1 && changed.slots == 2 && changed.last == 27);

  /* The first access of a slot in the access list is warm: 2100 less. */
  uint64_t cold = outcome.gas_left;
  niwaki_evm_free(evm);
  cubes = 0;
  evm = niwaki_evm_new(again, &block, &reader);
  message.access_list = &access;
  message.access_count = 1;
  CHECK(niwaki_evm_run(evm, &message, &outcome) == NIWAKI_OK && outcome.gas_left == cold + 2100);
  CHECK(outcome.state_gas == 0 && outcome.reservoir_left == 0);
  message.access_count = 0;

  /* A creation with more value than the caller has. */
  niwaki_message creation = {.creates = true, .gas = 100000};
  creation.target.bytes[0] = 0xdd;
  creation.value.bytes[31] = 1;
  CHECK(niwaki_evm_run(evm, &creation, &outcome) == NIWAKI_OK && outcome.end == NIWAKI_REVERT);
  CHECK(outcome.gas_left == 100000);

  message.gas = 60;
  CHECK(niwaki_evm_run(evm, &message, &outcome) == NIWAKI_OK && outcome.end == NIWAKI_HALT && outcome.gas_left == 0);
  message.gas = 200000;
  CHECK(niwaki_evm_run(other, &message, &outcome) == NIWAKI_OK && outcome.end == NIWAKI_HALT);
  CHECK(niwaki_evm_run(NULL, &message, &outcome) == NIWAKI_ARGUMENT);
  CHECK(niwaki_evm_run(other, NULL, &outcome) == NIWAKI_ARGUMENT);
  niwaki_evm_free(other);

  here.fails = true;
  message.target.bytes[1] = 0xff;
  CHECK(niwaki_evm_run(evm, &message, &outcome) == NIWAKI_FAULT && strstr(niwaki_last_error(), "returned 5"));
  CHECK(niwaki_evm_run(evm, &message, &outcome) == NIWAKI_ARGUMENT);
  niwaki_evm_free(evm);
  niwaki_evm_free(NULL);
  niwaki_table_free(again);
  niwaki_table_free(NULL);
  puts("ok");
  return 0;
}
