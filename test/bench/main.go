// Command bench measures what an injection adds to a container's creation, on
// the real containerd and runc: ours, and beside it the peer's (a spec by
// NVIDIA's nvidia-ctk with nvidia-cdi-hook, injected by containerd), on the same
// driver and the same simulated card.
//
// In each round every mode makes one container of a Debian image, in a random
// order; what is measured is CreateContainer and StartContainer, by the client
// of the CRI. A mode's figure is the median of its differences to the plain
// container of the same round, since these machines are never quiet. A second
// plain container is the control: where it differs from the first by more than a
// millisecond, the run is void.
//
// node.go has the modes, measure.go the rounds, stats.go the arithmetic,
// figures.go what is printed and written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

type options struct {
	rounds, warmUp int
	seed           uint64
	out            string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 150, "rounds that are measured")
	flag.IntVar(&o.warmUp, "warm-up", 10, "rounds before them that are not")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the order within a round, and of the bootstrap")
	flag.StringVar(&o.out, "out", "", "file for the figures; empty: bench.json in the cache")
	flag.Parse()
	world, err := harness.Enter()
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		err = run(ctx, world, o)
		stop()
	}
	if err != nil {
		fmt.Println("bench: FAILED:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, world *harness.World, o options) error {
	_, file, _, _ := runtime.Caller(0)
	s, err := stack.StartRuntime(ctx, world, stack.Options{Top: filepath.Join(filepath.Dir(file), "..", ".."), Profile: "t4x1"})
	if err == nil {
		err = measureAll(ctx, s, o)
	}
	return errors.Join(err, s.Stop())
}

func measureAll(ctx context.Context, s *stack.Stack, o options) error {
	all, err := modes(ctx, s)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(o.seed, 0))
	times, err := measure(ctx, s, all, o, random)
	if err != nil {
		return err
	}
	f := figuresOf(times, random)
	fmt.Print(f.table(all))
	if o.out == "" {
		o.out = filepath.Join(s.Cache, "bench.json")
	}
	return errors.Join(f.write(o.out), f.void())
}
