package harness

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Server is the API server's address.
const Server = "https://127.0.0.1:6443"

// AdminToken is that of a member of system:masters, good in one world only.
const AdminToken = "e2e-admin"

// ControlPlane is etcd, the API server, the scheduler and the controllers.
type ControlPlane struct {
	// Kubeconfig is an administrator's.
	Kubeconfig string
	processes  []*Process
}

// StartControlPlane starts all of it and waits for each part.
func (w *World) StartControlPlane(ctx context.Context, tools Tools) (*ControlPlane, error) {
	if err := tools.Check("kube-apiserver", "kube-scheduler", "kube-controller-manager"); err != nil {
		return nil, err
	}
	dir := filepath.Join(w.Dir, "control-plane")
	c := &ControlPlane{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := c.files(dir); err != nil {
		return nil, err
	}
	for _, p := range c.programs(dir, tools) {
		process, err := w.start(ctx, p)
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.processes = append(c.processes, process)
	}
	return c, nil
}

// Stop ends all of it, in the reverse order.
func (c *ControlPlane) Stop() error {
	var errs []error
	for i := len(c.processes) - 1; i >= 0; i-- {
		errs = append(errs, c.processes[i].Stop())
	}
	return errors.Join(errs...)
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: e2e
clusters: [{name: e2e, cluster: {server: "` + Server + `", insecure-skip-tls-verify: true}}]
contexts: [{name: e2e, context: {cluster: e2e, user: admin}}]
users: [{name: admin, user: {token: ` + AdminToken + `}}]
`

func (c *ControlPlane) files(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for name, content := range map[string]string{
		"kubeconfig": kubeconfig, "sa.key": string(private), "tokens.csv": AdminToken + ",admin,admin,system:masters\n",
	} {
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(dir, "certs"), 0o755)
}

func (c *ControlPlane) programs(dir string, tools Tools) []command {
	in := func(name string) string { return filepath.Join(dir, name) }
	return []command{
		{
			name: "etcd", path: "/usr/bin/etcd", within: time.Minute, ready: get("http://127.0.0.1:2379/health"),
			args: []string{
				"--data-dir", in("etcd"), "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
				"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync",
			},
		},
		{
			name: "kube-apiserver", path: tools.Path("kube-apiserver"), within: 3 * time.Minute, ready: secure(Server + "/readyz"),
			args: []string{
				"--etcd-servers", "http://127.0.0.1:2379", "--cert-dir", in("certs"), "--bind-address", "127.0.0.1", "--secure-port", "6443",
				"--advertise-address", NodeAddress, "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.68.0.0/16",
				"--token-auth-file", in("tokens.csv"), "--authorization-mode", "Node,RBAC", "--kubelet-preferred-address-types", "InternalIP",
				"--service-account-issuer", Server, "--service-account-key-file", in("sa.key"), "--service-account-signing-key-file", in("sa.key"),
			},
		},
		{
			name: "kube-controller-manager", path: tools.Path("kube-controller-manager"), within: time.Minute, ready: secure("https://127.0.0.1:10257/healthz"),
			args: []string{
				"--kubeconfig", c.Kubeconfig, "--leader-elect=false", "--controllers=*,-nodeipam", "--service-account-private-key-file", in("sa.key"),
				"--use-service-account-credentials=false", "--bind-address", "127.0.0.1", "--flex-volume-plugin-dir", in("volume-plugins"),
			},
		},
		{
			name: "kube-scheduler", path: tools.Path("kube-scheduler"), within: time.Minute, ready: secure("https://127.0.0.1:10259/healthz"),
			args: []string{"--kubeconfig", c.Kubeconfig, "--leader-elect=false", "--bind-address", "127.0.0.1"},
		},
	}
}

// secure is get for a server whose certificate nobody signed.
func secure(url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+AdminToken)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
