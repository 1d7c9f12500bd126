package mps

import (
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// process is a daemon that this program started.
type process struct {
	pid int
	// done is closed when it has ended and was waited for.
	done chan struct{}
	cmd  *exec.Cmd
}

// startProcess starts a command whose /dev/shm is shm. The goroutine that waits
// for it has a thread of its own, whose mount namespace the command inherits.
func startProcess(cmd *exec.Cmd, shm string) (*process, error) {
	p := &process{done: make(chan struct{}), cmd: cmd}
	started := make(chan error, 1)
	run := func() {
		err := privateShm(shm)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err != nil {
			return
		}
		// What there is to know of its end is in cmd.ProcessState.
		_ = cmd.Wait()
		close(p.done)
	}
	if shm == devShm {
		go run()
	} else {
		onOwnThread(run)
	}
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// onOwnThread runs f on a thread that ends with it, and never on the process'
// first: that one is what /proc/self stands for.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(taken)
			f()
		}()
		<-taken
		runtime.UnlockOSThread()
	}()
}

func (p *process) ended() bool { return p.wait(0) }

// wait returns whether the process has ended, at the latest after a time.
func (p *process) wait(atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	default:
	}
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// kill ends the process and its group, and returns whether it did within a time.
func (p *process) kill(atMost time.Duration) bool {
	if p.ended() {
		return true // its group may be another's by now
	}
	if err := unix.Kill(-p.pid, unix.SIGKILL); err != nil {
		return p.ended()
	}
	return p.wait(atMost)
}

// state is how it ended, "exit status 1"; only after done.
func (p *process) state() *os.ProcessState { return p.cmd.ProcessState }
