// geth-state: geth's state layer as a contender of `niwaki-bench state-root`.
//
// It opens a state in geth's path scheme over pebble, makes it if the folder is empty, and then
// answers one JSON line on stdout to each JSON line on stdin. A line with changes is a block: they
// are put into a StateDB before the clock starts, then IntermediateRoot and Commit are timed apart.
// A line with "finish" brings everything to the disk and compacts it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/ethereum/go-ethereum/common"
)

// made is the first line: where the state stands.
type made struct {
	Version string      `json:"version"`
	Number  uint64      `json:"number"`
	Root    common.Hash `json:"root"`
	MadeS   float64     `json:"made_s"`
}

// request is a line of stdin: a block, or the end.
type request struct {
	Number   uint64    `json:"number"`
	Accounts []account `json:"accounts"`
	Finish   bool      `json:"finish"`
}

// account is what a block changes in one account.
type account struct {
	Address common.Address   `json:"address"`
	Nonce   uint64           `json:"nonce"`
	Slots   [][2]common.Hash `json:"slots"`
}

// outcome is the answer to a block.
type outcome struct {
	Root     common.Hash `json:"root"`
	RootMs   float64     `json:"root_ms"`
	CommitMs float64     `json:"commit_ms"`
}

// finished is the answer to the end.
type finished struct {
	FlushMs   float64 `json:"flush_ms"`
	CompactMs float64 `json:"compact_ms"`
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "folder of the state")
	flag.Uint64Var(&o.accounts, "accounts", 1000, "accounts of a new state")
	flag.Uint64Var(&o.slotsEach, "slots-each", 20_000, "slots of each account of a new state")
	flag.IntVar(&o.cacheMiB, "cache-mib", 4096, "MiB for all caches, split as geth splits --cache")
	flag.BoolVar(&o.prefetch, "prefetch", false, "load the tries before the clock starts")
	threads := flag.Int("threads", 0, "threads; 0 for all")
	flag.Parse()
	if *threads > 0 {
		runtime.GOMAXPROCS(*threads)
	}
	if err := serve(o, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "geth-state:", err)
		os.Exit(1)
	}
}

func serve(o options, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	state, madeS, err := open(o)
	if err != nil {
		return err
	}
	err = answers.Encode(made{gethVersion(), state.head.Number, state.head.Root, madeS})
	if err != nil {
		return err
	}
	requests := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	for {
		var r request
		if err := requests.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if r.Finish {
			done, err := state.finish()
			if err != nil {
				return err
			}
			return answers.Encode(done)
		}
		done, err := state.block(r, o.prefetch)
		if err != nil {
			return err
		}
		// Garbage is collected outside of every clock, geth's own and that of who asks.
		runtime.GC()
		if err := answers.Encode(done); err != nil {
			return err
		}
	}
}

// gethVersion is the version of the module that was built in.
func gethVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/ethereum/go-ethereum" {
			return module.Version
		}
	}
	return "unknown"
}
