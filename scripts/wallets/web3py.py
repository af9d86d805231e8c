"""What web3.py does: fees, a transfer, a contract, events, an error."""

import json
import sys

from eth_account import Account
from web3 import Web3
from web3.exceptions import ContractLogicError

KEY = "0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63"
SECOND = "0x627306090abaB3A6e1400e9345bC60c78a8BEf57"

w3 = Web3(Web3.HTTPProvider(sys.argv[1]))
compiled = json.load(open(sys.argv[2]))
account = Account.from_key(KEY)
assert w3.is_connected() and w3.eth.chain_id == 1337


def send(transaction):
    transaction.setdefault("from", account.address)
    transaction["nonce"] = w3.eth.get_transaction_count(account.address, "pending")
    transaction.setdefault("gas", w3.eth.estimate_gas(transaction))
    fee = w3.eth.gas_price
    transaction |= {"maxFeePerGas": 2 * fee, "maxPriorityFeePerGas": w3.eth.max_priority_fee, "chainId": 1337}
    transaction.pop("gasPrice", None)
    signed = account.sign_transaction(transaction)
    return w3.eth.wait_for_transaction_receipt(w3.eth.send_raw_transaction(signed.raw_transaction), poll_latency=0.1)


before = w3.eth.get_balance(SECOND)
assert send({"to": SECOND, "value": 9}).status == 1
assert w3.eth.get_balance(SECOND) == before + 9
factory = w3.eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])
deployed = send({"data": factory.constructor(1).data_in_transaction})
box = w3.eth.contract(address=deployed.contractAddress, abi=compiled["abi"])
assert box.functions.value().call() == 1
receipt = send({"to": box.address, "data": box.encode_abi("store", args=[8])})
assert box.events.Stored().process_receipt(receipt)[0].args.value == 8
assert box.functions.value().call() == 8
try:
    box.functions.store(13).call({"from": account.address})
    raise AssertionError("it must be refused")
except ContractLogicError as error:
    assert "unlucky" in str(error), error
history = w3.eth.fee_history(4, "latest", [50])
assert len(history["baseFeePerGas"]) >= 2
print("web3.py: all right")
