package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
)

// podTimeout bounds the wait for a container to run.
const podTimeout = 90 * time.Second

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: demo}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[2]s
    imagePullPolicy: Never
    command: [/probe/probe, wait]
    %[3]s
    volumeMounts:
    - {name: probe, mountPath: /probe, readOnly: true}
%[5]s
  volumes:
  - {name: probe, hostPath: {path: %[4]s}}
%[6]s
`

type pod struct {
	name string
	gpus int
}

// pods runs the three pods and prints what each got. ok says whether each got
// exactly what it was allocated.
func (d *demo) pods(ctx context.Context) (ok bool, err error) {
	pods := []pod{{"one-gpu", 1}, {"two-gpus", 2}, {"no-gpu", 0}}
	for _, p := range pods {
		resources := "resources: {}"
		if p.gpus > 0 {
			resources = fmt.Sprintf("resources: {limits: {%s: %d}}", d.node.Resource, p.gpus)
		}
		d.step("pod %s asks for %d GPUs", p.name, p.gpus)
		mount, volume := "", ""
		if inside := d.node.InsideConfig(); inside != "" {
			// What the simulated driver's library reads.
			mount = fmt.Sprintf("    - {name: nvml, mountPath: %s, readOnly: true}", harness.InsideConfigPath)
			volume = fmt.Sprintf("  - {name: nvml, hostPath: {path: %s, type: File}}", inside)
		}
		text := fmt.Sprintf(manifest, p.name, d.image, resources, filepath.Join(d.node.Bin, "test"), mount, volume)
		// Written elsewhere and moved in, so that the kubelet never reads half.
		draft := filepath.Join(d.world.Dir, p.name+".yaml")
		if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
			return false, err
		}
		if err := os.Rename(draft, filepath.Join(d.manifests(), p.name+".yaml")); err != nil {
			return false, err
		}
	}
	inv, err := d.inventory()
	if err != nil {
		return false, err
	}
	ok = true
	for _, p := range pods {
		right, err := d.show(ctx, p, inv)
		if err != nil {
			return false, fmt.Errorf("pod %s: %w", p.name, err)
		}
		ok = ok && right
	}
	return ok, nil
}

func (d *demo) inventory() (device.Inventory, error) {
	var inv device.Inventory
	data, err := os.ReadFile(d.node.State.Inventory())
	if err == nil {
		err = json.Unmarshal(data, &inv)
	}
	return inv, err
}

// show waits for a pod's container, looks into it and prints what it has.
func (d *demo) show(ctx context.Context, p pod, inv device.Inventory) (bool, error) {
	uid, text, err := look(ctx, p.name+"-"+harness.NodeName)
	if err != nil {
		return false, err
	}
	var r report.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return false, fmt.Errorf("the probe's report: %w: %s", err, text)
	}
	allocated, err := harness.Allocated(uid, "main", d.node.Resource)
	if err != nil {
		return false, err
	}
	wrong := compare(r, allocated, p.gpus, inv)
	fmt.Printf("\npod %s\n", p.name)
	fmt.Println(indent("  ", table(r, allocated, inv)))
	if len(wrong) > 0 {
		fmt.Println(indent("  WRONG: ", strings.Join(wrong, "\n")))
	}
	fmt.Println()
	return len(wrong) == 0, nil
}

// look runs the probe in a container once it runs.
func look(ctx context.Context, pod string) (uid, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := harness.Container(ctx, pod, "main")
		if err == nil {
			if text, err = harness.Exec(ctx, c.GetId(), "/probe/probe"); err == nil {
				return c.GetLabels()["io.kubernetes.pod.uid"], text, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("its container does not run within %s: %w", podTimeout, err)
		case <-tick.C:
		}
	}
}

func table(r report.Report, allocated []string, inv device.Inventory) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	row("allocated by the kubelet", "%s", none(cards(inv, allocated)))
	row("seen through NVML inside", "%s", none(r.NVML))
	for i, n := range r.Nodes {
		key := ""
		if i == 0 {
			key = "device nodes"
		}
		row(key, "%-18s %d:%d  open: %s", n.Path, n.Major, n.Minor, n.Open)
	}
	if len(r.Nodes) == 0 {
		row("device nodes", "none")
	}
	var refused []string
	for _, n := range r.Made {
		if !n.Allowed() {
			refused = append(refused, fmt.Sprint(n.Minor))
		}
	}
	row("cards made by mknod", "refused: %s of 0-%d", none(refused), len(r.Made)-1)
	row("libcuda.so.1 by its loader", "%s", r.Dlopen)
	row("ldconfig -p", "%s", none(names(r.Libraries)))
	row("environment", "%s", none(r.Env))
	_ = w.Flush() // to a buffer
	return b.String()
}

func none(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " ")
}

// cards adds the minor to each UUID.
func cards(inv device.Inventory, uuids []string) []string {
	var out []string
	for _, u := range uuids {
		if a, ok := inv.Find(u); ok {
			u = fmt.Sprintf("%s (nvidia%d)", u, a.GPU.Minor)
		}
		out = append(out, u)
	}
	return out
}

func names(libs map[string]string) []string {
	var out []string
	for n := range libs {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// compare says what a container has too little or too much.
func compare(r report.Report, allocated []string, want int, inv device.Inventory) []string {
	var wrong []string
	if len(allocated) != want {
		wrong = append(wrong, fmt.Sprintf("it was allocated %d devices and asked for %d", len(allocated), want))
	}
	mine := map[uint32]bool{}
	for _, u := range allocated {
		if a, ok := inv.Find(u); ok {
			mine[uint32(a.GPU.Minor)] = true
		}
	}
	have := map[string]report.Node{}
	for _, n := range r.Nodes {
		have[n.Path] = n
	}
	for i := range inv.GPUs {
		minor := uint32(inv.GPUs[i].Minor)
		n, ok := have[fmt.Sprintf("/dev/nvidia%d", minor)]
		if mine[minor] && (!ok || !n.Allowed()) {
			wrong = append(wrong, fmt.Sprintf("/dev/nvidia%d was allocated and cannot be opened", minor))
		}
		if !mine[minor] && ok {
			wrong = append(wrong, fmt.Sprintf("/dev/nvidia%d was not allocated and is there", minor))
		}
	}
	for _, n := range r.Made {
		if n.Allowed() != mine[n.Minor] {
			wrong = append(wrong, fmt.Sprintf("opening card %d, made by mknod, gives %s", n.Minor, n.Open))
		}
	}
	if want > 0 && r.Dlopen != "ok" {
		wrong = append(wrong, "its loader does not find libcuda.so.1: "+r.Dlopen)
	}
	seen := slices.Clone(r.NVML)
	slices.Sort(seen)
	if want > 0 && !slices.Equal(seen, allocated) {
		wrong = append(wrong, fmt.Sprintf("NVML inside lists %v", r.NVML))
	}
	return wrong
}
