package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/ethdb/pebble"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/triedb"
	"github.com/ethereum/go-ethereum/triedb/pathdb"
	"github.com/holiman/uint256"
)

// Slots that are committed at once while a state is made.
const slotsAtOnce = 400_000

// How long geth's prefetcher gets before the clock starts, if it is to run.
const prefetchTime = 500 * time.Millisecond

// The row that says which block's state the folder holds.
var headKey = []byte("geth-state head")

// The rules of a recent block: empty accounts go, storage is not wiped.
var rules = params.Rules{
	IsHomestead: true, IsEIP150: true, IsEIP155: true, IsEIP158: true,
	IsByzantium: true, IsConstantinople: true, IsPetersburg: true, IsIstanbul: true,
	IsBerlin: true, IsEIP2929: true, IsLondon: true, IsMerge: true, IsShanghai: true,
	IsCancun: true, IsPrague: true, IsOsaka: true,
}

type options struct {
	dir                 string
	accounts, slotsEach uint64
	cacheMiB            int
	prefetch            bool
}

// head is a block by number and state root; none before a state was made.
type head struct {
	Number uint64      `json:"number"`
	Root   common.Hash `json:"root"`
}

type world struct {
	disk  ethdb.Database
	tries *triedb.Database
	state state.Database
	head  head
}

// open opens the state, made first if the folder has none; tells the seconds that took.
func open(o options) (*world, float64, error) {
	began := time.Now()
	_, absent := os.Stat(filepath.Join(o.dir, "chaindata"))
	disk, err := openDisk(o)
	if err != nil {
		return nil, 0, err
	}
	if row, _ := disk.Get(headKey); row != nil {
		w := openTries(disk, o, false)
		return w, 0, json.Unmarshal(row, &w.head)
	}
	if absent == nil {
		return nil, 0, fmt.Errorf("the state in %s was never finished; remove the folder", o.dir)
	}
	w := openTries(disk, o, true)
	if err := w.make(o); err != nil {
		return nil, 0, err
	}
	if err := w.close(); err != nil {
		return nil, 0, err
	}
	if disk, err = openDisk(o); err != nil {
		return nil, 0, err
	}
	opened := openTries(disk, o, false)
	opened.head = w.head
	return opened, time.Since(began).Seconds(), nil
}

// openDisk opens pebble and the freezer as geth's node does, with half of the cache.
func openDisk(o options) (ethdb.Database, error) {
	chaindata := filepath.Join(o.dir, "chaindata")
	rows, err := pebble.New(chaindata, o.cacheMiB*50/100, 4096, "", false)
	if err != nil {
		return nil, fmt.Errorf("can't open %s: %w", chaindata, err)
	}
	ancient := filepath.Join(chaindata, "ancient")
	return rawdb.Open(rows, rawdb.OpenOptions{Ancient: ancient})
}

// openTries opens the path database with geth's settings. While a state is made its history is not
// kept: it would be that of no block.
func openTries(disk ethdb.Database, o options, making bool) *world {
	config := *pathdb.Defaults
	config.TrieCleanSize = o.cacheMiB * 15 / 100 << 20
	config.StateCleanSize = o.cacheMiB * 10 / 100 << 20
	// What geth takes at most, and with its own defaults.
	config.WriteBufferSize = min(o.cacheMiB*25/100, 256) << 20
	config.NoAsyncGeneration = true
	if making {
		config.StateHistory = 1
	}
	tries := triedb.NewDatabase(disk, &triedb.Config{PathDB: &config})
	return &world{disk, tries, state.NewDatabase(tries, nil), head{}}
}

func addressOf(n uint64) common.Address {
	return common.BigToAddress(new(big.Int).SetUint64(n + 0x1000))
}

// inOrder is every account, ascending by the hash of its address: so rows come in the order that
// they lie in on the disk, which saves pebble most of the merging.
func inOrder(accounts uint64) []uint64 {
	hashes := make([]common.Hash, accounts)
	order := make([]uint64, accounts)
	for n := range order {
		order[n] = uint64(n)
		hashes[n] = crypto.Keccak256Hash(addressOf(uint64(n)).Bytes())
	}
	slices.SortFunc(order, func(a, b uint64) int { return hashes[a].Cmp(hashes[b]) })
	return order
}

// make writes the accounts and slots that niwaki-bench makes.
func (w *world) make(o options) error {
	root, pending := types.EmptyRootHash, uint64(0)
	db, err := state.New(root, w.state)
	if err != nil {
		return err
	}
	for at, n := range inOrder(o.accounts) {
		address := addressOf(n)
		db.SetNonce(address, 1, tracing.NonceChangeGenesis)
		balance := uint256.NewInt(n)
		db.AddBalance(address, balance, tracing.BalanceIncreaseGenesisBalance)
		for slot := uint64(0); slot < o.slotsEach; slot++ {
			db.SetState(address, word(slot), word(slot+1))
		}
		pending += o.slotsEach
		if pending < slotsAtOnce && uint64(at)+1 < o.accounts {
			continue
		}
		if root, err = db.Commit(rules, 0); err != nil {
			return err
		}
		if err = w.tries.Commit(root, false); err != nil {
			return err
		}
		if db, err = state.New(root, w.state); err != nil {
			return err
		}
		pending = 0
	}
	return w.setHead(head{0, root})
}

func word(n uint64) common.Hash {
	return common.BigToHash(new(big.Int).SetUint64(n))
}

// block applies a block and times its root and its commit.
func (w *world) block(r request, prefetch bool) (outcome, error) {
	db, err := state.New(w.head.Root, w.state)
	if err != nil {
		err = fmt.Errorf("the state of block %d is not there, remove the folder: %w", w.head.Number, err)
		return outcome{}, err
	}
	if prefetch {
		db.StartPrefetcher("bench", nil)
	}
	for _, account := range r.Accounts {
		for _, slot := range account.Slots {
			db.SetState(account.Address, slot[0], slot[1])
		}
		db.SetNonce(account.Address, account.Nonce, tracing.NonceChangeUnspecified)
	}
	if prefetch {
		db.Finalise(rules)
		time.Sleep(prefetchTime)
	}
	began := time.Now()
	db.IntermediateRoot(rules)
	rooted := time.Now()
	root, err := db.Commit(rules, r.Number)
	if err != nil {
		return outcome{}, err
	}
	committed := time.Now()
	w.head = head{r.Number, root}
	return outcome{root, ms(rooted.Sub(began)), ms(committed.Sub(rooted))}, nil
}

// finish brings the head's state to the disk, compacts the disk, and closes it.
func (w *world) finish() (finished, error) {
	began := time.Now()
	// Nothing is above the disk if there was no block.
	if w.isAhead() {
		if err := w.tries.Commit(w.head.Root, false); err != nil {
			return finished{}, err
		}
	}
	if err := w.setHead(w.head); err != nil {
		return finished{}, err
	}
	if err := w.tries.Close(); err != nil {
		return finished{}, err
	}
	flushed := time.Now()
	if err := w.disk.Compact(nil, nil); err != nil {
		return finished{}, err
	}
	compacted := time.Now()
	done := finished{ms(flushed.Sub(began)), ms(compacted.Sub(flushed))}
	return done, w.disk.Close()
}

// isAhead tells whether blocks were committed since the head's row was written.
func (w *world) isAhead() bool {
	row, _ := w.disk.Get(headKey)
	var stored head
	return json.Unmarshal(row, &stored) != nil || stored != w.head
}

func (w *world) setHead(h head) error {
	w.head = h
	row, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return w.disk.Put(headKey, row)
}

func (w *world) close() error {
	if err := w.tries.Close(); err != nil {
		return err
	}
	return w.disk.Close()
}

func ms(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e6
}
