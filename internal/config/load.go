package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// EnvPrefix starts the name of every environment variable that is read.
const EnvPrefix = "NRI_GPU_"

// FileFlag is the flag that names the YAML file.
const FileFlag = "config"

// Where a setting may come from, beside a file.
const (
	sourceFlag    = "command line"
	sourceEnv     = "environment"
	sourceDefault = "default"
)

// Error is a setting that cannot be used.
type Error struct {
	// Source is where it was set: a file's path, "environment", "command line" or
	// "default".
	Source string
	// Key is the setting's name there.
	Key string
	// Rule says what is wrong and what would be right.
	Rule string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Source, e.Key, e.Rule) }

// IsError tells whether err is about settings, which means exit status 2.
func IsError(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// EnvName is the environment variable of a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// AddFileFlag defines --config.
func AddFileFlag(fs *pflag.FlagSet) {
	fs.String(FileFlag, "", "YAML file with settings; its keys are the names of the flags below")
}

// Load fills the flags that the command line left alone, from the environment
// as lookup gives it (os.LookupEnv) and from the file of --config.
func Load(fs *pflag.FlagSet, lookup func(string) (string, bool)) error {
	set := map[string]bool{}
	fs.Visit(func(f *pflag.Flag) {
		set[f.Name] = true
		remember(f, sourceFlag, "--"+f.Name)
	})
	if err := loadEnv(fs, lookup, set); err != nil {
		return err
	}
	file := fs.Lookup(FileFlag)
	if file == nil || file.Value.String() == "" {
		return nil
	}
	return loadFile(fs, file.Value.String(), set)
}

func loadEnv(fs *pflag.FlagSet, lookup func(string) (string, bool), set map[string]bool) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if set[f.Name] || f.Name != FileFlag && !isSetting(f.Name) {
			return
		}
		for _, name := range append([]string{EnvName(f.Name)}, f.Annotations[envKey]...) {
			value, ok := lookup(name)
			if !ok {
				continue
			}
			set[f.Name] = true
			remember(f, sourceEnv, name)
			if err := assign(fs, f, []string{value}); err != nil {
				errs = append(errs, &Error{Source: sourceEnv, Key: name, Rule: err.Error()})
			}
			return
		}
	})
	return errors.Join(errs...)
}

// envKey is the annotation of a flag that holds further names of its environment
// variable.
const envKey = "nri-gpu-env"

// AddEnvAlias makes a flag be read from further environment variables, after
// its own.
func AddEnvAlias(fs *pflag.FlagSet, flag string, names ...string) {
	f := fs.Lookup(flag)
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[envKey] = append(f.Annotations[envKey], names...)
}

// IsSet tells whether a flag was set, by whatever source.
func IsSet(fs *pflag.FlagSet, flag string) bool {
	f := fs.Lookup(flag)
	return f != nil && len(f.Annotations[sourceKey]) > 0
}

func loadFile(fs *pflag.FlagSet, path string, set map[string]bool) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return &Error{Source: sourceFlag, Key: "--" + FileFlag, Rule: err.Error()}
	}
	values, err := decode(data)
	if err != nil {
		return withSource(err, path)
	}
	var errs []error
	for _, kv := range values {
		f := fs.Lookup(kv.key)
		if f == nil || !isSetting(kv.key) {
			errs = append(errs, &Error{Source: path, Key: kv.key, Rule: "unknown key; known keys are " + strings.Join(names(fs), ", ")})
			continue
		}
		if set[kv.key] {
			continue
		}
		remember(f, path, kv.key)
		if err := assign(fs, f, kv.values); err != nil {
			errs = append(errs, &Error{Source: path, Key: kv.key, Rule: err.Error()})
		}
	}
	return errors.Join(errs...)
}

// sourceKey is the annotation of a flag that holds where its value came from.
const sourceKey = "nri-gpu-source"

func remember(f *pflag.Flag, source, key string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[sourceKey] = []string{source, key}
}

// Settings can be checked as a whole.
type Settings interface{ Validate() error }

// Validate checks settings that Load filled, and names in each error where the
// value was set.
func Validate(fs *pflag.FlagSet, s Settings) error {
	err := s.Validate()
	locate(fs, err)
	return err
}

// All are settings that are checked together.
type All []Settings

// Validate checks every setting and reports all faults at once.
func (a All) Validate() error {
	var errs []error
	for _, s := range a {
		errs = append(errs, s.Validate())
	}
	return errors.Join(errs...)
}

// locate walks a tree of joined errors.
func locate(fs *pflag.FlagSet, err error) {
	switch e := err.(type) { //nolint:errorlint // every branch is walked
	case *Error:
		if f := fs.Lookup(e.Key); f != nil && len(f.Annotations[sourceKey]) == 2 {
			e.Source, e.Key = f.Annotations[sourceKey][0], f.Annotations[sourceKey][1]
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			locate(fs, inner)
		}
	case interface{ Unwrap() error }:
		locate(fs, e.Unwrap())
	}
}

func assign(fs *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if slice, ok := f.Value.(pflag.SliceValue); ok && len(values) != 1 {
		return slice.Replace(values)
	}
	if len(values) != 1 {
		return fmt.Errorf("takes one value of type %s, got a list of %d", f.Value.Type(), len(values))
	}
	if err := fs.Set(f.Name, values[0]); err != nil {
		return fmt.Errorf("%q is not a valid %s: %w", values[0], f.Value.Type(), errors.Unwrap(err))
	}
	return nil
}

// isSetting tells a setting from the flags that every program has.
func isSetting(flag string) bool {
	return !slices.Contains([]string{FileFlag, "help", "version"}, flag)
}

func names(fs *pflag.FlagSet) []string {
	var out []string
	fs.VisitAll(func(f *pflag.Flag) {
		if isSetting(f.Name) {
			out = append(out, f.Name)
		}
	})
	slices.Sort(out)
	return out
}

func withSource(err error, source string) error {
	var e *Error
	if errors.As(err, &e) {
		e.Source = source
	}
	return err
}

type keyValues struct {
	key    string
	values []string
}

// decode reads a flat YAML mapping of scalars and lists of scalars.
func decode(data []byte) ([]keyValues, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, &Error{Key: "(whole file)", Rule: err.Error()}
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, &Error{Key: "(whole file)", Rule: "must be a mapping of settings"}
	}
	var out []keyValues
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i].Value
		values, err := scalars(root.Content[i+1])
		if err != nil {
			return nil, &Error{Key: fmt.Sprintf("%s (line %d)", key, root.Content[i].Line), Rule: err.Error()}
		}
		if slices.ContainsFunc(out, func(kv keyValues) bool { return kv.key == key }) {
			return nil, &Error{Key: fmt.Sprintf("%s (line %d)", key, root.Content[i].Line), Rule: "is set twice"}
		}
		out = append(out, keyValues{key, values})
	}
	return out, nil
}

func scalars(n *yaml.Node) ([]string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return []string{n.Value}, nil
	case yaml.SequenceNode:
		out := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, errors.New("a list may hold only plain values")
			}
			out = append(out, item.Value)
		}
		return out, nil
	case yaml.DocumentNode, yaml.MappingNode, yaml.AliasNode:
	}
	return nil, errors.New("must be a plain value or a list of plain values")
}
