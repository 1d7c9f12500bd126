package nvml

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// WorkerCommand is the hidden command of a program that runs Serve.
const WorkerCommand = "nvml-worker"

// GPUDeadline bounds what the driver may take for one GPU, unless a caller of
// Serve says otherwise.
const GPUDeadline = 3 * time.Second

// message is one line from the worker: an answer, or an event that nobody asked
// for.
type message struct {
	Answer *answer     `json:"answer,omitempty"`
	XID    *device.XID `json:"xid,omitempty"`
}

// answer is a snapshot.
type answer struct {
	Inventory device.Inventory `json:"inventory"`
	// Lost has NVML's reason for each index that gave no UUID.
	Lost map[int]string `json:"lost,omitempty"`
	// Hung says that a call of this worker did not return: it is of no more
	// use.
	Hung bool `json:"hung,omitempty"`
}

// Serve is the worker: for each line on in it takes a snapshot with the library
// at path and writes one line of JSON, until in ends or a call has hung. In
// between it writes a line for each XID. gpuDeadline bounds the calls about one
// GPU.
func Serve(path string, gpuDeadline time.Duration, in io.Reader, out io.Writer) error {
	w := &worker{lib: gonvml.New(gonvml.WithLibraryPath(path)), path: path, gpuDeadline: gpuDeadline, out: json.NewEncoder(out)}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a := w.snapshot()
		if err := w.send(message{Answer: &a}); err != nil {
			return fmt.Errorf("answer a snapshot: %w", err)
		}
		if a.Hung {
			return nil
		}
	}
	return lines.Err()
}

type worker struct {
	lib         gonvml.Interface
	path        string
	gpuDeadline time.Duration
	initialised bool
	links       []device.Link
	linksOf     []string
	listener    *listener

	mu  sync.Mutex // of out
	out *json.Encoder
}

func (w *worker) send(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(m)
}

func (w *worker) snapshot() answer {
	if !w.initialised {
		if ret := w.lib.Init(); ret != gonvml.SUCCESS {
			return failure(w.path, "nvmlInit", ret)
		}
		w.initialised = true
	}
	count, ret := w.lib.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		w.reset()
		return failure(w.path, "nvmlDeviceGetCount", ret)
	}
	inv := device.Inventory{Driver: w.driver()}
	if count == 0 {
		inv.Driver.State = device.DriverNoDevices
		inv.Driver.Reason = "the driver is loaded and lists no GPU"
	}
	a := answer{Inventory: inv}
	w.collect(count, &a)
	if !a.Hung {
		a.Inventory.Links = w.topology(a.Inventory.GPUs)
		w.listen(&a.Inventory)
	}
	return a
}

// reset makes the next snapshot initialise again.
func (w *worker) reset() {
	w.stopListening()
	_ = w.lib.Shutdown() // it cannot be worse than it is
	w.initialised = false
}

func (w *worker) driver() device.Driver {
	d := device.Driver{State: device.DriverReady}
	if v, ret := w.lib.SystemGetDriverVersion(); ret == gonvml.SUCCESS {
		d.Version = v
	}
	if v, ret := w.lib.SystemGetCudaDriverVersion(); ret == gonvml.SUCCESS {
		// 1000 × major + 10 × minor, nvml.h.
		d.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return d
}

type result struct {
	index int
	gpu   device.GPU
	err   string
}

// collect asks about all GPUs side by side, so that one that hangs does not
// hold up the others.
func (w *worker) collect(count int, a *answer) {
	results := make(chan result, count)
	for i := range count {
		go func() {
			gpu, err := w.query(i)
			results <- result{i, gpu, err}
		}()
	}
	waiting := map[int]bool{}
	for i := range count {
		waiting[i] = true
	}
	a.Lost = map[int]string{}
	gpus := make([]*device.GPU, count)
	deadline := time.After(w.gpuDeadline)
	for len(waiting) > 0 {
		select {
		case r := <-results:
			delete(waiting, r.index)
			if r.err != "" {
				a.Lost[r.index] = r.err
				continue
			}
			gpus[r.index] = &r.gpu
		case <-deadline:
			for i := range waiting {
				a.Lost[i] = fmt.Sprintf("NVML did not answer about it within %s", w.gpuDeadline)
			}
			a.Hung = true
			waiting = nil
		}
	}
	for _, g := range gpus {
		if g != nil {
			a.Inventory.GPUs = append(a.Inventory.GPUs, *g)
		}
	}
}

// failure turns the return code of a call into the driver's state.
func failure(path, call string, ret gonvml.Return) answer {
	d := device.Driver{State: device.DriverFailed, Reason: fmt.Sprintf("%s: %v", call, ret)}
	if ret == gonvml.ERROR_LIBRARY_NOT_FOUND {
		d = device.Driver{State: device.DriverLibraryMissing, Reason: fmt.Sprintf("%s cannot be loaded", path)}
	}
	if ret == gonvml.ERROR_DRIVER_NOT_LOADED {
		d = device.Driver{State: device.DriverNotLoaded, Reason: "the NVIDIA kernel module is not loaded; load it with `modprobe nvidia`"}
	}
	if ret == gonvml.ERROR_LIB_RM_VERSION_MISMATCH {
		d = device.Driver{State: device.DriverVersionMismatch, Reason: fmt.Sprintf("%s is of another version than the loaded kernel module; reload the module or reboot", path)}
	}
	return answer{Inventory: device.Inventory{Driver: d}}
}
