package harness

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// Image is a container image that is made from a directory.
type Image struct {
	// Name is the reference by which pods name it.
	Name string
	// Root holds the files.
	Root string
	// Env and Command are the image's configuration.
	Env, Command []string
}

// descriptor, of the OCI image specification.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Archive writes the image as an OCI layout in a tar file, unless it is there.
// The layer is not compressed: the image travels nowhere.
func (i Image) Archive(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	layer, err := os.CreateTemp(filepath.Dir(file), "layer-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	sum := sha256.New()
	cmd := exec.CommandContext(ctx, "tar", "--numeric-owner", "--sort=name", "-C", i.Root, "-cf", "-", ".")
	cmd.Stdout, cmd.Stderr = io.MultiWriter(layer, sum), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("archive %s: %w", i.Root, err)
	}
	return i.layout(file, layer, "sha256:"+hex.EncodeToString(sum.Sum(nil)))
}

func (i Image) layout(file string, layer *os.File, digest string) error {
	info, err := layer.Stat()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, i.Env...), "Cmd": i.Command},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}},
	})
	if err != nil {
		return err
	}
	out, err := os.Create(file + ".tmp")
	if err != nil {
		return err
	}
	defer out.Close()
	t := &layoutWriter{tar: tar.NewWriter(out)}
	t.stream("blobs/sha256/"+digest[len("sha256:"):], layer, info.Size())
	configBlob := t.blob("application/vnd.oci.image.config.v1+json", config)
	manifest := t.blob("application/vnd.oci.image.manifest.v1+json", t.json(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": configBlob,
		"layers": []descriptor{{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: digest, Size: info.Size()}},
	}))
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name}
	t.file("index.json", t.json(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}}))
	t.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	if t.err == nil {
		t.err = t.tar.Close()
	}
	if t.err != nil {
		return t.err
	}
	return os.Rename(file+".tmp", file)
}

// layoutWriter keeps the first error.
type layoutWriter struct {
	tar *tar.Writer
	err error
}

func (t *layoutWriter) stream(name string, r io.ReadSeeker, size int64) {
	if t.err == nil {
		_, t.err = r.Seek(0, io.SeekStart)
	}
	if t.err == nil {
		t.err = t.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)})
	}
	if t.err == nil {
		_, t.err = io.Copy(t.tar, r)
	}
}

func (t *layoutWriter) file(name string, data []byte) {
	if t.err == nil {
		t.err = t.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0)})
	}
	if t.err == nil {
		_, t.err = t.tar.Write(data)
	}
}

func (t *layoutWriter) json(v any) []byte {
	data, err := json.Marshal(v)
	if t.err == nil {
		t.err = err
	}
	return data
}

func (t *layoutWriter) blob(media string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	t.file("blobs/sha256/"+hex.EncodeToString(sum[:]), data)
	return descriptor{MediaType: media, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

// Import gives an archive to containerd.
func (w *World) Import(ctx context.Context, tools Tools, file string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, tools.Path("ctr"), "--address", ContainerdSocket, "--namespace", "k8s.io", "image", "import", "--local", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w: %s", file, err, out)
	}
	return nil
}

// PauseImage is the image of a pod's sandbox: busybox, which ends on SIGTERM
// when it sleeps as the first process only if it is told to.
func (w *World) PauseImage() (Image, error) {
	root := filepath.Join(w.Dir, "pause")
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return Image{}, fmt.Errorf("busybox-static is needed: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		return Image{}, err
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), data, 0o755); err != nil {
		return Image{}, err
	}
	return Image{Name: pauseImage, Root: root, Command: []string{"/bin/busybox", "sh", "-c", "trap 'exit 0' TERM INT; while :; do /bin/busybox sleep 3600 & wait; done"}}, nil
}

// DebianImage is the image that hack/fetch-image.sh made in the cache.
func DebianImage(cache string) Image {
	return Image{Name: "nri-gpu.test/debian:bookworm", Root: filepath.Join(cache, "debian-bookworm-2", "root"), Command: []string{"/bin/bash"}}
}
