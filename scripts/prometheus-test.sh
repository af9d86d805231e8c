#!/usr/bin/env bash
# A Prometheus scrapes a network of validators under load, a node that a consensus client drives, and one that looks for peers; then every
# query of the dashboard and of Besu's, every metric of docs/metrics.md, every name of Besu's and every alert is evaluated. Needs prometheus and promtool (Debian: apt install prometheus) and python3.
#
#   scripts/prometheus-test.sh
#
#   NIWAKI   the binary (default: a release build)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
bin="$CARGO_TARGET_DIR/release"
export NIWAKI="${NIWAKI:-$bin/niwaki}"
folder="$(mktemp -d)"
pids=()
stop() {
  # A program that drives a node leaves it behind when it is killed.
  for pid in "${pids[@]}"; do pkill -P "$pid" -x niwaki || true; done
  kill "${pids[@]}" 2> /dev/null || true
  wait
  rm -rf "$folder"
}
trap stop EXIT

promtool check rules packaging/prometheus/alerts.yml
METRICS=1 GAS_LIMIT=0x280de800 scripts/quick-network.sh qbft "$folder/net" > "$folder/net.log" 2>&1 &
pids+=($!)
NIWAKI_METRICS_ENABLED=true NIWAKI_METRICS_PORT=9555 "$bin/niwaki-devnet" soak --niwaki "$NIWAKI" --slots 100000 --contracts 10 > "$folder/soak.log" 2>&1 &
pids+=($!)
# The lists of this name server cannot be read.
"$NIWAKI" --network sepolia --data-path "$folder/sepolia" --engine-rpc-port 8571 --metrics-enabled --metrics-port 9556 --bootnodes= \
  --p2p-interface 127.0.0.1 --p2p-port 30399 --nat-method NONE --Xp2p-dns-discovery-server 127.0.0.1:9 > "$folder/sepolia.log" 2>&1 &
pids+=($!)
cat > "$folder/prometheus.yml" <<YML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["$PWD/packaging/prometheus/alerts.yml"]
scrape_configs:
  - job_name: niwaki
    static_configs: [{targets: ["127.0.0.1:9545", "127.0.0.1:9546", "127.0.0.1:9547", "127.0.0.1:9548", "127.0.0.1:9549", "127.0.0.1:9555", "127.0.0.1:9556"]}]
YML
prometheus --config.file "$folder/prometheus.yml" --storage.tsdb.path "$folder/data" --web.listen-address 127.0.0.1:19090 > "$folder/prometheus.log" 2>&1 &
pids+=($!)
sleep 8
"$bin/niwaki-bench" tps --rpc http://127.0.0.1:8545,http://127.0.0.1:8549 --rate 200 --warm-up 0 --seconds 30
curl -s -H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":[]}' http://127.0.0.1:8545 > /dev/null
sleep 3
python3 - <<'PY'
import json, re, urllib.parse, urllib.request

def ask(path, **query):
    url = "http://127.0.0.1:19090/api/v1/" + path + "?" + urllib.parse.urlencode(query)
    try:
        return json.load(urllib.request.urlopen(url))["data"]
    except urllib.error.HTTPError as error:
        return {"result": [], "error": json.load(error)["error"]}

empty = []
dashboard = json.load(open("packaging/grafana/niwaki.json"))
queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
besu = [line.rstrip() for line in open("testdata/besu/overview.promql") if not line.startswith("#")]
queries += [query.replace("$system", ".*") for query in besu]
for query in queries:
    query = query.replace("$instance", ".*").replace("$__rate_interval", "20s").replace("$__range", "20s")
    answer = ask("query", query=query)
    if not answer["result"]:
        empty.append(query + " " + answer.get("error", ""))
names = set(re.findall(r"^\| `(\w+)`", open("docs/metrics.md").read(), re.M))
names |= {line.split()[0] for line in open("testdata/besu/metrics.txt") if not line.startswith("#")}
for name in names:
    if not ask("query", query='{__name__=~"%s(_sum)?"}' % name)["result"]:
        empty.append(name)
rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
bad = [rule["name"] for rule in rules if rule["health"] != "ok"]
fires = [rule["name"] for rule in rules if rule["state"] == "firing"]
print(f"{len(queries)} queries, {len(names)} metrics, {len(rules)} alerts; {len(empty)} answered with nothing, {len(bad)} rules fail, {len(fires)} fire")
for line in empty + bad + fires:
    print("  ", line)
raise SystemExit(1 if empty or bad or fires else 0)
PY
