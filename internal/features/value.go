package features

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Prefix is that of every key.
const Prefix = "nvidia.com/"

// maxLength is that of a value, and of a key without its prefix.
const maxLength = 63

// valid is what Kubernetes allows as a key without its prefix.
var valid = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

// sanitise makes a value of any text, as GPU feature discovery does: blanks
// become one dash, characters that a label may not have are dropped. Unlike
// there, the result is also cut to its length and begins and ends as it must;
// it is empty when nothing is left.
func sanitise(text string) string { return cut(clean(text), maxLength) }

// product is sanitise for a model with a suffix, which is kept where both are
// too long; empty for a model that has no name.
func product(model, suffix string) string {
	suffix = strings.TrimRight(cutRight(clean(suffix), maxLength-1), "-_.")
	if model = cut(clean(model), maxLength-len(suffix)); model == "" {
		return ""
	}
	return model + suffix
}

func clean(text string) string {
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		if i > 0 {
			b.WriteByte('-')
		}
		for _, r := range word {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

func cut(text string, length int) string {
	return strings.Trim(cutRight(strings.TrimLeft(text, "-_."), length), "-_.")
}

func cutRight(text string, length int) string { return text[:min(len(text), length)] }

// modelKey is the key of a model's attribute, without prefix; empty for a model
// that has no name. The name gets a tag when it has to be cut, or when tagged
// says that it is not the only one that would look like this.
func modelKey(model, attribute string, tagged bool) string {
	const start = "gpu.model."
	name := sanitise(model)
	if name == "" {
		return ""
	}
	room := maxLength - len(start) - len(".") - len(attribute)
	if tagged || len(name) > room {
		sum := sha256.Sum256([]byte(model))
		tag := "-" + hex.EncodeToString(sum[:4])
		name = cut(name, max(room-len(tag), 0)) + tag
	}
	return start + name + "." + attribute
}

// labels collects labels. Only valid ones come in: what is empty or cannot be
// made valid is left out.
type labels map[string]string

func (l labels) set(key, value string) {
	value = sanitise(value)
	if len(key) <= maxLength && valid.MatchString(key) && value != "" {
		l[Prefix+key] = value
	}
}

// replace is set, and leaves nothing of an earlier value.
func (l labels) replace(key, value string) {
	delete(l, Prefix+key)
	l.set(key, value)
}
