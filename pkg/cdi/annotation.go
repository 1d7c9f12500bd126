package cdi

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// AnnotationPrefix starts the key of every annotation that carries a grant. On
// a pod it is never ours: a pod's author wrote it.
const AnnotationPrefix = "alloc." + Vendor + "/"

const (
	tokenVersion = "v1"
	// maxToken bounds a token, in bytes. 128 devices take some 12 kB.
	maxToken = 64 << 10
	// maxKeyName is what Kubernetes allows after the "/" of a key.
	maxKeyName = 63
)

// Grant is what the device plugin says to nri-gpu about one container and one
// resource: which devices it was allocated.
type Grant struct {
	// Resource is the extended resource.
	Resource string `json:"resource"`
	// Names are qualified names, sorted, each once.
	Names []string `json:"names"`
}

// AnnotationKey is the key for a resource: one for each, because the kubelet
// merges the answers of several resources and keeps one value of a key.
func AnnotationKey(resource string) string {
	name := strings.ReplaceAll(resource, "/", "_")
	if len(name) > maxKeyName {
		sum := sha256.Sum256([]byte(resource))
		name = "r-" + hex.EncodeToString(sum[:16])
	}
	return AnnotationPrefix + name
}

// ErrToken is the error of a token that is malformed or was not signed with a
// key of this node.
var ErrToken = errors.New("the allocation in the container's annotation is not valid")

type payload struct {
	KeyID string `json:"kid"`
	Grant
}

// Sign returns the annotation's value. The same grant gives the same value, so
// that the kubelet's record and a new answer are equal.
func (k *Keyring) Sign(g Grant) (string, error) {
	body, err := json.Marshal(payload{KeyID: k.current().ID, Grant: g})
	if err != nil {
		return "", fmt.Errorf("encode grant: %w", err)
	}
	head := tokenVersion + "." + base64.RawURLEncoding.EncodeToString(body)
	return head + "." + base64.RawURLEncoding.EncodeToString(k.current().mac(head)), nil
}

// Verify reads a value that Sign wrote, with any key of the ring. Everything
// about it is checked before it is believed.
func (k *Keyring) Verify(key, value string) (Grant, error) {
	p, head, mac, err := decodeToken(value)
	if err != nil {
		return Grant{}, err
	}
	i := slices.IndexFunc(k.keys, func(c signingKey) bool { return c.ID == p.KeyID })
	if i < 0 {
		return Grant{}, fmt.Errorf("%w: it was signed with key %q, which this node does not have", ErrToken, p.KeyID)
	}
	if !hmac.Equal(mac, k.keys[i].mac(head)) {
		return Grant{}, fmt.Errorf("%w: the signature does not match", ErrToken)
	}
	if key != AnnotationKey(p.Resource) {
		return Grant{}, fmt.Errorf("%w: it was signed for resource %q and stands under %q", ErrToken, p.Resource, key)
	}
	return p.Grant, nil
}

// decodeToken takes a token apart without believing any of it.
func decodeToken(value string) (p payload, head string, mac []byte, err error) {
	if len(value) > maxToken {
		return p, "", nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrToken, len(value), maxToken)
	}
	parts := strings.Split(value, ".")
	if len(parts) != 3 || parts[0] != tokenVersion {
		return p, "", nil, fmt.Errorf("%w: it is not of the form %s.payload.signature", ErrToken, tokenVersion)
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil {
		return p, "", nil, fmt.Errorf("%w: payload: %w", ErrToken, err)
	}
	if mac, err = base64.RawURLEncoding.Strict().DecodeString(parts[2]); err != nil {
		return p, "", nil, fmt.Errorf("%w: signature: %w", ErrToken, err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, "", nil, fmt.Errorf("%w: payload: %w", ErrToken, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return p, "", nil, fmt.Errorf("%w: payload has more than one value", ErrToken)
	}
	return p, parts[0] + "." + parts[1], mac, nil
}
