package cdi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// secretSize is the size of a key in bytes, that of the hash.
const secretSize = sha256.Size

// Keyring holds the keys of a node, which never leave it. The first signs; all
// of them verify, so that a pod outlives a new key.
type Keyring struct{ keys []signingKey }

type signingKey struct {
	ID     string `json:"kid"`
	Secret []byte `json:"secret"`
}

type keyFile struct {
	Keys []signingKey `json:"keys"`
}

func (k signingKey) mac(text string) []byte {
	h := hmac.New(sha256.New, k.Secret)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func (k *Keyring) current() signingKey { return k.keys[0] }

// ReadKeyring reads the node's keys. The error wraps fs.ErrNotExist as long as
// there are none.
func ReadKeyring(path string) (*Keyring, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	var f keyFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("signing keys in %q: %w; remove the file to have a new key made, pods that were allocated GPUs must then be deleted", path, err)
	}
	if len(f.Keys) == 0 {
		return nil, fmt.Errorf("%q holds no signing key; remove it to have one made", path)
	}
	for _, k := range f.Keys {
		if k.ID == "" || len(k.Secret) != secretSize {
			return nil, fmt.Errorf("signing key %q in %q is not one of %d bytes", k.ID, path, secretSize)
		}
	}
	return &Keyring{keys: f.Keys}, nil
}

// LoadOrCreateKeyring reads the node's keys, and makes the first when there is
// none. Of two processes that do so at the same time one's key stands.
func LoadOrCreateKeyring(path string) (*Keyring, error) {
	ring, err := ReadKeyring(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return ring, err
	}
	if err := createKey(path); err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return ReadKeyring(path)
}

func createKey(path string) error {
	secret, id := make([]byte, secretSize), make([]byte, 8)
	_, _ = rand.Read(secret) // never fails (crypto/rand)
	_, _ = rand.Read(id)
	data, err := json.Marshal(keyFile{Keys: []signingKey{{ID: hex.EncodeToString(id), Secret: secret}}})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".alloc.key.*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	// A hard link, unlike a rename, does not replace a key that another process
	// has made meanwhile.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
