// Command chaos runs pods with GPUs while the parts of the node are killed and
// stopped, its disk fills and its files are cut short, and checks after it all
// that no container ever ran with other cards than it was allocated, that no
// card was in two containers, and that everything ran in the end.
//
// faults.go has what is done to the node, workload.go what runs on it,
// judge.go what must hold. The last line is the figures; the exit status is 0
// when nothing was violated.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

func main() {
	var o options
	flag.DurationVar(&o.duration, "for", time.Minute, "how long faults go on")
	flag.Int64Var(&o.seed, "seed", time.Now().UnixNano(), "seed of the choice of faults")
	flag.IntVar(&o.containers, "containers", 0, "go on until so many containers ran")
	flag.IntVar(&o.faults, "faults", 0, "go on until there were so many faults")
	flag.Parse()
	world, err := harness.Enter()
	if err != nil {
		fmt.Println("chaos: FAILED:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	figures, err := run(ctx, world, o)
	stop()
	if err != nil {
		fmt.Println("chaos: FAILED:", err)
	}
	fmt.Println(figures)
	if err != nil || len(figures.violations) > 0 {
		os.Exit(1)
	}
}

type options struct {
	duration           time.Duration
	seed               int64
	containers, faults int
}

// ceiling bounds how long "until so many" may take, as a multiple of the
// duration.
const ceiling = 3

// backOff lowers the cap of the kubelet's back-off between two starts of a
// container, so that what was refused is tried again within the run.
const backOff = "crashLoopBackOff: {maxContainerRestartPeriod: 2s}\n"

func run(ctx context.Context, world *harness.World, o options) (*figures, error) {
	_, file, _, _ := runtime.Caller(0)
	f := &figures{finals: map[string]int{}}
	fmt.Printf("chaos: %s of faults, seed %d\n", o.duration, o.seed)
	s, err := stack.Start(ctx, world, stack.Options{
		Top: filepath.Join(filepath.Dir(file), "..", ".."), Profile: "a100x8", Kubelet: harness.Kubelet{Extra: backOff}, SmallState: true,
	})
	if err == nil {
		err = storm(ctx, s, o, f)
	}
	return f, errors.Join(err, s.Stop())
}

// storm is the whole of it on a stack that stands.
func storm(ctx context.Context, s *stack.Stack, o options, f *figures) error {
	w, err := newWorkload(s)
	if err != nil {
		return err
	}
	watch := startJudge(ctx, s, w.dir, f)
	defer watch.stop()
	w.start(ctx, f)

	n := newFaults(s, o.seed, f)
	begin := time.Now()
	enough := func() bool {
		containers, faults := f.counts()
		done := time.Since(begin) > o.duration && containers >= o.containers && faults >= o.faults
		return done || time.Since(begin) > ceiling*o.duration || ctx.Err() != nil
	}
	for !enough() {
		if err := n.next(ctx); err != nil {
			f.violate("the node did not recover: %v", err)
			return errors.New("what is left was not waited for")
		}
	}
	fmt.Printf("chaos: the faults are over after %s\n", time.Since(begin).Round(time.Second))
	w.finish(ctx, f)
	watch.check()
	if err := w.remove(ctx); err != nil {
		return err
	}
	leftovers(ctx, s, f)
	return ctx.Err()
}
